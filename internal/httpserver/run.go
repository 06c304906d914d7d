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
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 32 << 10
)

// Run serves what comes to ln until ctx is done, or ln fails. Then nothing new
// is begun: a request is refused with 503, while answers to our own questions
// are still let in. The sessions are told, have what grace Serve gives them, and
// what they answer goes out; clients that do not take it are cut off. Everything
// is gone when Run returns, and the Server cannot be used any more.
func (d *Server) Run(ctx context.Context, ln net.Listener) error {
	conns := newConnTracker(maxConns*d.o.MaxSessions, d.log)
	server := &http.Server{
		Handler:           d,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(&acceptErrors{Handler: d.log.Handler()}, slog.LevelDebug),
		ConnContext:       conns.begin,
		ConnState:         conns.note,
	}
	d.serving.Go(func() { d.sweep(d.ctx) })
	failed := make(chan error, 1)
	go func() {
		if d.o.TLS != nil {
			server.TLSConfig = d.o.TLS.Clone()
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
	d.close(server)
	conns.wait(lastWords)
	_ = server.Close()
	<-failed
	conns.wait(0)
	d.end()
	d.refusals.flush()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// close lets no session begin any more, and ends all in the way that their holders have for it.
func (d *Server) close(server *http.Server) {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	server.SetKeepAlivesEnabled(false)
	d.stop()
}

// stop ends what is open, and waits for that.
func (d *Server) stop() {
	d.cancel()
	for _, s := range d.all() {
		d.serving.Go(func() { s.held().Shutdown() })
	}
	d.serving.Wait()
}

// sweep ends the sessions that are idle, each when its time has come or at most one thousandth of it later, until ctx
// is done.
func (d *Server) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := d.o.IdleTimeout // of those, too, that begin from now on
		for _, s := range d.all() {
			if left := s.endIfIdle(); left > 0 {
				next = min(next, left)
			}
		}
		timer.Reset(max(next, d.o.IdleTimeout/1000))
	}
}

// all returns the sessions that are open.
func (d *Server) all() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.sessions))
}

// end waits until the last exchange has ended, and lets none begin any more.
func (d *Server) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.exchanges > 0 {
		d.idle.Wait()
	}
	d.over = true
}

// acceptErrors is a handler for the log of an http.Server. That no connection can be accepted, for
// want of descriptors, is a warning, every so often; all else is as it comes.
type acceptErrors struct {
	slog.Handler
	last atomic.Int64 // when that was a warning last, in nanoseconds
}

// Enabled implements slog.Handler.
func (h *acceptErrors) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *acceptErrors) Handle(ctx context.Context, r slog.Record) error {
	if why, ok := strings.CutPrefix(r.Message, "http: Accept error: "); ok {
		now, last := r.Time.UnixNano(), h.last.Load()
		if time.Duration(now-last) > quiet && h.last.CompareAndSwap(last, now) {
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
