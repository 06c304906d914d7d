package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
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
	srv.sessions.running.Go(func() { srv.sessions.sweep(srv.ctx) })
	var access sync.WaitGroup
	access.Go(func() { srv.access.runVerifier(srv.ctx) })
	access.Go(func() {
		srv.access.awaitExpiry(srv.ctx, func() {
			srv.closeExcluded("closed sessions and requests of expired tokens")
		})
	})
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
	srv.shutDown(func() { server.SetKeepAlivesEnabled(false) })
	conns.wait(closeDrainTimeout)
	_ = server.Close()
	<-failed
	conns.wait(0)
	srv.active.close()
	access.Wait()
	srv.stateless.cancelling.Wait()
	srv.rejections.flush()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// shutDown refuses new sessions and requests, calls refused, and shuts down the open sessions and
// requests. It waits for their handlers.
func (srv *Server) shutDown(refused func()) {
	srv.sessions.refuseNew()
	srv.stateless.refuseNew()
	refused()
	srv.cancel()
	var requests sync.WaitGroup
	requests.Go(srv.stateless.shutDown)
	srv.sessions.shutDown()
	requests.Wait()
}
