package adminserver

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"mcpgateway/internal/adminapi"
)

// A CallSource knows the calls. Its methods do not block.
type CallSource interface {
	Calls(adminapi.CallFilter) adminapi.CallList
	// Call returns a call by its call id. It returns false if the id is unknown.
	Call(id string) (adminapi.CallDetail, bool)
}

const (
	defaultCalls = 100
	maxCalls     = 1000 // in one response, in addition to those in flight
)

// serveCalls returns the handler of GET /api/v1/calls.
func serveCalls(source CallSource) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := callFilter(r.URL.Query())
		if err == nil {
			f.Limit, err = limitIn(r.URL.Query(), defaultCalls, maxCalls)
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		writeJSON(w, http.StatusOK, source.Calls(f))
	}
}

// callFilter reads a filter from a query, without the limit.
func callFilter(q url.Values) (adminapi.CallFilter, *adminapi.APIError) {
	f := adminapi.CallFilter{
		Backend: q.Get("backend"), Name: q.Get("name"), Session: q.Get("session"),
		Client: q.Get("client"), Principal: q.Get("principal"), Outcome: q.Get("outcome"),
	}
	if text := q.Get("slower"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return f, &adminapi.APIError{Text: "slower is not a duration",
				Hint: "write a duration such as 500ms"}
		}
		f.Slower = d
	}
	return f, nil
}

// limitIn reads the parameter limit.
func limitIn(q url.Values, unset, most int) (int, *adminapi.APIError) {
	text := q.Get("limit")
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, &adminapi.APIError{Text: "limit is not a number from 0 to " + strconv.Itoa(most)}
	}
	return n, nil
}

// serveCall returns the handler of GET /api/v1/calls/{id}.
func serveCall(source CallSource) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call, ok := source.Call(r.PathValue("id"))
		if !ok {
			writeError(w, http.StatusNotFound, &adminapi.APIError{
				Text: "no such call in memory, which has the last calls only",
				Hint: "the audit log has all calls: gateway audit show ID"})
			return
		}
		writeJSON(w, http.StatusOK, call)
	}
}
