// Package adminserver serves the admin API: JSON over HTTP on the admin socket and, with
// admin.listen, at an address of its own. The types are those of internal/adminapi.
//
// The server gets what it shows through small interfaces, one for each subject. Their results are
// masked already: the server shows every text as it is. It decides who may send requests
// (access.go) and bounds what clients can cause (docs/limits.md).
package adminserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"mcpgateway/internal/adminapi"
)

// Bounds of the connections of one listener.
const (
	maxConns       = 64
	maxHeaderBytes = 16 << 10
	maxBody        = 64 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
)

// A StatusSource knows the status of the gateway. Its methods do not block.
type StatusSource interface {
	Status() adminapi.GatewayStatus
}

// Options are the dependencies of an API.
type Options struct {
	Status  StatusSource
	Calls   CallSource
	Logs    LogSource
	Events  EventSource
	Control Controller
	Catalog CatalogSource
	Clients ClientServer
	Metrics http.Handler // of GET /metrics
	Page    PageSource
	Log     *slog.Logger
}

// An API serves the admin API. Create it with New.
type API struct {
	Options
	mux     *http.ServeMux
	connect connectHandler
}

// New returns an API.
func New(o Options) *API {
	a := &API{Options: o, mux: http.NewServeMux()}
	a.connect.ClientServer = o.Clients
	for _, r := range a.endpoints() {
		a.mux.HandleFunc(r.method+" "+r.path, r.handle)
	}
	a.mux.HandleFunc("/", a.refuseUnknown)
	return a
}

// Serve serves the requests of ln until ctx is done, and closes ln. Then it closes the connections
// without a grace period, and waits for the handlers, whose requests are done. The error is nil if
// ctx is done.
func (a *API) Serve(ctx context.Context, ln net.Listener, access AccessRule) error {
	var conns sync.WaitGroup // each with the goroutine of its handlers
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.serve(w, r, access)
		}),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(newLimitedListener(ln, maxConns))
	_ = server.Close()
	conns.Wait()
	a.connect.sessions.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, access AccessRule) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if access.Logins != nil && a.servePage(w, r, access) {
		return
	}
	r, end, isLoggedIn := access.withLogin(r)
	defer end()
	if status, err := access.check(r, isLoggedIn); err != nil {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		writeError(w, status, err)
		return
	}
	if r.URL.Path == connectPath && access.CheckBrowser {
		writeError(w, http.StatusForbidden, &adminapi.APIError{
			Text: "clients connect over the admin socket only",
			Hint: "over HTTP, clients use the address of listen"})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	a.mux.ServeHTTP(w, r)
}

// refuseUnknown responds to a request that no endpoint matches.
func (a *API) refuseUnknown(w http.ResponseWriter, r *http.Request) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := &http.Request{Method: method, Host: r.Host, URL: r.URL}
		if _, pattern := a.mux.Handler(other); pattern != "/" {
			w.Header().Set("Allow", method)
			writeError(w, http.StatusMethodNotAllowed, &adminapi.APIError{
				Text: "use the method " + method + " for " + r.URL.Path})
			return
		}
	}
	writeError(w, http.StatusNotFound, &adminapi.APIError{Text: "no such path: " + r.URL.Path,
		Hint: "GET /api/v1/openapi.json lists the paths"})
}

// writeJSON writes a response.
func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // fails if the client has disconnected
}

func writeError(w http.ResponseWriter, status int, err *adminapi.APIError) {
	writeJSON(w, status, err)
}
