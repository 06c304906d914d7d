package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout   = 10 * time.Second
	idleConnTimeout = 2 * time.Minute
	maxHeaderBytes  = 32 << 10
)

// Run serves the connections of ln until ctx is done (Run then returns nil) or ln fails (Run then
// returns the error). Then the Server shuts down: new requests get status 503, responses of clients
// to server requests are still accepted, handlers shut down their sessions, possibly after a grace
// period, and the last messages are sent. Clients that do not read are disconnected after
// closeDrainTimeout. When Run returns, all goroutines have ended, and the Server cannot be used
// again.
func (srv *Server) Run(ctx context.Context, ln net.Listener) error {
	conns := newConnTracker(maxConnsPerSession*srv.opts.MaxSessions, srv.log)
	errorHandler := &acceptErrorHandler{Handler: srv.log.Handler()}
	server := &http.Server{
		Handler:           srv,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleConnTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(errorHandler, slog.LevelDebug),
		ConnContext:       conns.connContext,
		ConnState:         conns.onStateChange,
	}
	srv.running.Go(func() { srv.sweepIdle(srv.ctx) })
	failed := make(chan error, 1)
	go func() {
		if srv.opts.TLS != nil {
			server.TLSConfig = srv.opts.TLS.Clone()
			failed <- server.ServeTLS(ln, "", "")
			return
		}
		failed <- server.Serve(ln)
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		failed <- nil
	}
	srv.shutDown(server)
	conns.wait(closeDrainTimeout)
	_ = server.Close()
	<-failed
	conns.wait(0)
	srv.awaitRequests()
	srv.rejections.flush()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// shutDown prevents new sessions, disables keep-alives and shuts down the sessions.
func (srv *Server) shutDown(server *http.Server) {
	srv.mu.Lock()
	srv.closing = true
	srv.mu.Unlock()
	server.SetKeepAlivesEnabled(false)
	srv.shutDownSessions()
}

// shutDownSessions shuts down all sessions and waits for their handlers.
func (srv *Server) shutDownSessions() {
	srv.cancel()
	for _, s := range srv.openSessions() {
		srv.running.Go(func() { s.currentHandler().Shutdown() })
	}
	srv.running.Wait()
}

// awaitRequests waits until no request is being served, and prevents further requests.
func (srv *Server) awaitRequests() {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for srv.activeRequests > 0 {
		srv.noRequests.Wait()
	}
	srv.runEnded = true
}
