package httpserver

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// acceptedFormat is the set of response formats that a client accepts.
type acceptedFormat int

const (
	acceptEither acceptedFormat = iota // accepts both, and does not prefer events
	acceptSSE                          // prefers events, or accepts only events
	acceptJSON                         // accepts only JSON
)

// usualAccept is the header Accept of most clients. It is not parsed.
const usualAccept = "application/json, text/event-stream"

// checkMediaTypes returns the response formats that the client of a POST accepts. It rejects a POST
// whose body is not JSON, or whose client accepts neither format.
func checkMediaTypes(r *http.Request) (acceptedFormat, *httpError) {
	if herr := checkContentType(r); herr != nil {
		return acceptEither, herr
	}
	if lines := r.Header["Accept"]; len(lines) == 1 && lines[0] == usualAccept {
		return acceptEither, nil
	}
	json, stream := acceptsType(r, "application", "json"), acceptsType(r, "text", "event-stream")
	switch {
	case !json && !stream:
		return acceptEither, newHTTPError(http.StatusNotAcceptable,
			"Not acceptable: the header Accept must name application/json or text/event-stream, "+
				"preferably both")
	case !stream:
		return acceptJSON, nil
	case !json || prefersSSE(r):
		return acceptSSE, nil
	}
	return acceptEither, nil
}

func checkContentType(r *http.Request) *httpError {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(r.Header["Content-Encoding"], ", ")))
	if coding != "" && coding != "identity" {
		return newHTTPError(http.StatusUnsupportedMediaType,
			"Unsupported media type: the body is encoded (%.100s): "+
				"send it unencoded, without the header Content-Encoding", coding).
			withHeader("Accept-Encoding", "identity")
	}
	text := r.Header.Get("Content-Type")
	if text == "application/json" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil || kind != "application/json" {
		return newHTTPError(http.StatusUnsupportedMediaType,
			"Unsupported media type: Content-Type must be application/json")
	}
	return nil
}

// acceptsType reports whether a client accepts a media type. The most specific matching media range
// decides (RFC 9110 §12.5.1).
func acceptsType(r *http.Request, kind, subtype string) bool {
	lines := r.Header["Accept"]
	if len(lines) == 0 {
		return true
	}
	accepted, best := false, 0
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(part, ";")
			specificity := matchSpecificity(strings.TrimSpace(name), kind, subtype)
			if specificity > best {
				accepted, best = qValue(parameters) > 0, specificity
			}
		}
	}
	return accepted
}

// prefersSSE reports whether a client prefers events to JSON: events have a higher weight, or have
// an equal weight and are listed first.
func prefersSSE(r *http.Request) bool {
	var events, json float64
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
			if name == "application/json" {
				json = qValue(parameters)
			} else {
				events = qValue(parameters)
			}
		}
	}
	return events > json || events == json && first == "text/event-stream"
}

// matchSpecificity returns the specificity with which a media range matches a type, 0 = no match.
func matchSpecificity(name, kind, subtype string) int {
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

// qValue returns the weight of a media range with these parameters; 0 = not accepted.
func qValue(parameters string) float64 {
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
