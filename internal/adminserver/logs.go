package adminserver

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"mcpgateway/internal/adminapi"
)

// A LogSource knows the last lines of the log. Its methods do not block.
type LogSource interface {
	// Logs returns the last lines that f selects, the oldest first; not nil.
	Logs(f LogFilter) []adminapi.LogEntry
}

// A LogFilter selects lines of the log.
type LogFilter struct {
	Backends []string  // nil = all lines, also those about no backend
	Since    time.Time // zero = all that are in memory
	Level    string    // the lowest level: debug, info, warn or error; "" = all
	Limit    int       // number of lines
}

const (
	defaultLogs = 100
	maxLogs     = 10_000 // lines in one response
)

// logLevels are the values of the parameter level.
var logLevels = []string{"", "debug", "info", "warn", "error"}

// serveLogs returns the handler of GET /api/v1/logs.
func serveLogs(source LogSource) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := logFilter(r.URL.Query(), defaultLogs)
		if err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		writeJSON(w, http.StatusOK, adminapi.LogList{Lines: source.Logs(f)})
	}
}

// logFilter reads a filter from a query. unset is the limit if the query has none.
func logFilter(q url.Values, unset int) (f LogFilter, err *adminapi.APIError) {
	f.Backends, f.Level = q["backend"], q.Get("level")
	if !slices.Contains(logLevels, f.Level) {
		return f, &adminapi.APIError{Text: "there is no such level",
			Hint: "the levels are debug, info, warn and error"}
	}
	if text := q.Get("since"); text != "" {
		since, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return f, &adminapi.APIError{Text: "since is not a time",
				Hint: "write a time such as 2026-12-01T15:04:05Z"}
		}
		f.Since = since
	}
	f.Limit, err = limitIn(q, unset, maxLogs)
	return f, err
}
