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

// Run serves what comes to ln until ctx is done, or ln fails. Then nothing new
// is begun: a request is refused with 503, while answers to our own questions
// are still let in. The sessions are told, have what grace Serve gives them, and
// what they answer goes out; clients that do not take it are cut off. Everything
// is gone when Run returns, and the Server cannot be used any more.
func (srv *Server) Run(ctx context.Context, ln net.Listener) error {
	conns := newConnTracker(maxConnsPerSession*srv.opts.MaxSessions, srv.log)
	server := &http.Server{
		Handler:           srv,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleConnTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(&acceptErrorHandler{Handler: srv.log.Handler()}, slog.LevelDebug),
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

// shutDown lets no session begin any more, and ends all in the way that their holders have for it.
func (srv *Server) shutDown(server *http.Server) {
	srv.mu.Lock()
	srv.closing = true
	srv.mu.Unlock()
	server.SetKeepAlivesEnabled(false)
	srv.shutDownSessions()
}

// shutDownSessions ends what is open, and waits for that.
func (srv *Server) shutDownSessions() {
	srv.cancel()
	for _, s := range srv.openSessions() {
		srv.running.Go(func() { s.currentHandler().Shutdown() })
	}
	srv.running.Wait()
}

// awaitRequests waits until the last exchange has ended, and lets none begin any more.
func (srv *Server) awaitRequests() {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for srv.activeRequests > 0 {
		srv.noRequests.Wait()
	}
	srv.runEnded = true
}
