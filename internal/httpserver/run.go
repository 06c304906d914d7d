package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
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

// sweepIdle ends the sessions that are idle, each when its time has come or at most one thousandth of it later, until ctx
// is done.
func (srv *Server) sweepIdle(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := srv.opts.IdleTimeout // of those, too, that begin from now on
		for _, s := range srv.openSessions() {
			if left := s.closeIfIdle(); left > 0 {
				next = min(next, left)
			}
		}
		timer.Reset(max(next, srv.opts.IdleTimeout/1000))
	}
}

// openSessions returns the sessions that are open.
func (srv *Server) openSessions() []*httpSession {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return slices.Collect(maps.Values(srv.sessions))
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

// acceptErrorHandler is a handler for the log of an http.Server. That no connection can be accepted, for
// want of descriptors, is a warning, every so often; all else is as it comes.
type acceptErrorHandler struct {
	slog.Handler
	lastWarning atomic.Int64 // when that was a warning last, in nanoseconds
}

// Enabled implements slog.Handler.
func (h *acceptErrorHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *acceptErrorHandler) Handle(ctx context.Context, r slog.Record) error {
	if why, ok := strings.CutPrefix(r.Message, "http: Accept error: "); ok {
		now, last := r.Time.UnixNano(), h.lastWarning.Load()
		if time.Duration(now-last) > logThrottle && h.lastWarning.CompareAndSwap(last, now) {
			warning := slog.NewRecord(r.Time, slog.LevelWarn, "no connection can be accepted", 0)
			warning.AddAttrs(slog.String("err", why))
			r = warning
		}
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
