package adminserver

import (
	"context"
	"net/http"
	"time"

	"mcpgateway/internal/adminapi"
)

// A Controller changes what the gateway does. Its methods wait until the change is done, or ctx is
// done.
type Controller interface {
	// Act returns an *adminapi.APIError if nothing can be done to a backend of this name.
	Act(ctx context.Context, backend string, action adminapi.BackendAction) (
		adminapi.ActionResult, error)
	// Reload reads the configuration file again.
	Reload(ctx context.Context) (adminapi.ReloadResult, error)
}

// serveAction returns the handler of a BackendAction.
func serveAction(control Controller, action adminapi.BackendAction) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		unlimited(w)
		result, err := control.Act(r.Context(), r.PathValue("name"), action)
		writeResult(w, result, err)
	}
}

// serveReload returns the handler of POST /api/v1/reload.
func serveReload(control Controller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		unlimited(w)
		result, err := control.Reload(r.Context())
		writeResult(w, result, err)
	}
}

// writeResult writes the result, or the error if it is not nil.
func writeResult(w http.ResponseWriter, result any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, result)
		return
	}
	refused, is := err.(*adminapi.APIError)
	if !is {
		refused = &adminapi.APIError{Status: http.StatusServiceUnavailable, Text: err.Error()}
	}
	writeError(w, refused.Status, refused)
}

// unlimited removes the deadlines of a connection whose response takes long.
func unlimited(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}
