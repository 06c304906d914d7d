package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ServerHeader is the value of the header Server in responses of /healthz and /readyz. It shows a
// gateway that the server is another gateway.
const ServerHeader = "mcp-gateway"

// serveReadiness responds to /readyz, with status 200 if the gateway can serve a new client. The
// names of pending backends are reported only to authenticated clients.
func (srv *Server) serveReadiness(w http.ResponseWriter, r *http.Request) {
	withNames := r.URL.Query().Has("backends")
	if withNames {
		if len(srv.access.Load().tokens) == 0 {
			srv.reject(w, r, newHTTPError(http.StatusForbidden,
				"Forbidden: the names of backends require a token: set auth.tokens"))
			return
		}
		if _, ok := srv.authenticate(w, r); !ok {
			return
		}
	}
	srv.mu.Lock()
	closing := srv.closing
	srv.mu.Unlock()
	var waiting []string
	if srv.opts.PendingBackends != nil {
		waiting = srv.opts.PendingBackends()
	}
	switch {
	case closing:
		srv.writeHealth(w, r, errors.New("the gateway is ending"))
	case len(waiting) == 0:
		srv.writeHealth(w, r, nil)
	case withNames:
		srv.writeHealth(w, r, fmt.Errorf("waiting for %s", strings.Join(waiting, ", ")))
	case len(waiting) == 1:
		srv.writeHealth(w, r, errors.New("waiting for 1 backend"))
	default:
		srv.writeHealth(w, r, fmt.Errorf("waiting for %d backends", len(waiting)))
	}
}

// writeHealth responds to a probe. Probes need no token, so the response reveals little.
func (srv *Server) writeHealth(w http.ResponseWriter, r *http.Request, missing error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		srv.reject(w, r, methodNotAllowed("GET, HEAD"))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Server", ServerHeader)
	text := "ok\n"
	if missing != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = "not ready: " + missing.Error() + "\n"
	}
	_, _ = w.Write([]byte(text))
}
