package httpserver

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// takes says in which form a client takes the answer to a POST.
type takes int

const (
	takesEither takes = iota
	takesEvents       // as events, which it prefers or which is all that it accepts
	takesJSON         // as JSON, which is all that it accepts
)

// checkMedia refuses a POST that is not JSON, or whose client accepts no kind of answer that there
// is. A client that accepts one kind alone gets that one.
func checkMedia(r *http.Request) (takes, *refusal) {
	if no := checkContent(r); no != nil {
		return takesEither, no
	}
	json, stream := acceptsType(r, "application", "json"), acceptsType(r, "text", "event-stream")
	switch {
	case !json && !stream:
		return takesEither, refuse(http.StatusNotAcceptable,
			"Not acceptable: the header Accept must name application/json or text/event-stream, at best both")
	case !stream:
		return takesJSON, nil
	case !json || prefersEvents(r):
		return takesEvents, nil
	}
	return takesEither, nil
}

func checkContent(r *http.Request) *refusal {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(r.Header["Content-Encoding"], ", ")))
	if coding != "" && coding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "Unsupported media type: the body is encoded (%.100s): "+
			"send it as it is, without the header Content-Encoding", coding).with("Accept-Encoding", "identity")
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "Unsupported media type: Content-Type must be application/json")
	}
	return nil
}

// acceptsType reports whether a media type is among those that the client takes.
// Of the ranges that it is in the narrowest counts (RFC 9110 §12.5.1).
func acceptsType(r *http.Request, kind, subtype string) bool {
	lines := r.Header["Accept"]
	if len(lines) == 0 {
		return true
	}
	taken, best := false, 0
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(part, ";")
			if fit := fits(strings.TrimSpace(name), kind, subtype); fit > best {
				taken, best = weight(parameters) > 0, fit
			}
		}
	}
	return taken
}

// prefersEvents reports whether a client would rather have its answers as events
// than as JSON: it gives them more weight, or the same and names them first.
func prefersEvents(r *http.Request) bool {
	weights := map[string]float64{}
	first := ""
	for _, line := range r.Header["Accept"] {
		for part := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(part, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if name != "text/event-stream" && name != "application/json" {
				continue
			}
			if first == "" {
				first = name
			}
			weights[name] = weight(parameters)
		}
	}
	events, json := weights["text/event-stream"], weights["application/json"]
	return events > json || events == json && first == "text/event-stream"
}

// fits tells how narrowly a media range holds a type, 0 if it does not.
func fits(name, kind, subtype string) int {
	a, b, _ := strings.Cut(name, "/")
	switch {
	case strings.EqualFold(a, kind) && strings.EqualFold(b, subtype):
		return 3
	case strings.EqualFold(a, kind) && b == "*":
		return 2
	case a == "*" && b == "*":
		return 1
	}
	return 0
}

// weight returns that of a media range with these parameters; 0 = not wanted.
func weight(parameters string) float64 {
	for part := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.EqualFold(name, "q") {
			if q, err := strconv.ParseFloat(value, 64); err == nil {
				return q
			}
		}
	}
	return 1
}
