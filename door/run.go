package door

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
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
// is gone when Run returns, and the Door cannot be used any more.
func (d *Door) Run(ctx context.Context, ln net.Listener) error {
	guests := &guests{most: maxConns * d.o.Sessions, log: d.log, all: make(map[net.Conn]guest)}
	guests.changed.L = &guests.mu
	server := &http.Server{
		Handler:           d,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		ConnState:         guests.note,
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
	guests.wait(lastWords)
	_ = server.Close()
	<-failed
	guests.wait(0)
	d.end()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// close lets no session begin any more, and ends all in the way that their holders have for it.
func (d *Door) close(server *http.Server) {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	server.SetKeepAlivesEnabled(false)
	d.stop()
}

// stop ends what is open, and waits for that.
func (d *Door) stop() {
	d.cancel()
	for _, s := range d.all() {
		d.serving.Go(func() { s.held().Stop() })
	}
	d.serving.Wait()
}

// sweep ends the sessions that are idle, each when its time has come or at most one thousandth of it later, until ctx
// is done.
func (d *Door) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := d.o.Idle // of those, too, that begin from now on
		for _, s := range d.all() {
			if left := s.endIfIdle(); left > 0 {
				next = min(next, left)
			}
		}
		timer.Reset(max(next, d.o.Idle/1000))
	}
}

// all returns the sessions that are open.
func (d *Door) all() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.sessions))
}

// end waits until the last exchange has ended, and lets none begin any more.
func (d *Door) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.exchanges > 0 {
		d.idle.Wait()
	}
	d.over = true
}

// maxConns bounds the connections, for each session that may be open.
const maxConns = 4

// guests are the connections of a server. More than there may be are closed as they come.
type guests struct {
	most int
	log  *slog.Logger

	mu      sync.Mutex
	all     map[net.Conn]guest
	changed sync.Cond
	crowded time.Time // when it was said last that there are too many
}

// A guest is a connection. HTTP/2 calls one idle whose last frame is not yet
// written, and closes it by itself once keep-alives are disabled.
type guest struct {
	state http.ConnState
	http2 bool
}

// note is the server's ConnState.
func (g *guests) note(c net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if state == http.StateNew && len(g.all) >= g.most {
		g.turnAwayLocked(c)
	}
	one := g.all[c]
	if secure, ok := c.(*tls.Conn); ok && one.state == http.StateNew && state != http.StateNew {
		one.http2 = secure.ConnectionState().NegotiatedProtocol == "h2"
	}
	one.state = state
	g.all[c] = one
	if state == http.StateClosed || state == http.StateHijacked {
		delete(g.all, c)
	}
	g.changed.Broadcast()
}

// turnAwayLocked closes a connection; the server tells that it is closed.
func (g *guests) turnAwayLocked(c net.Conn) {
	if now := time.Now(); now.Sub(g.crowded) > quiet {
		g.crowded = now
		g.log.Warn("no room for a further connection", "max", g.most)
	}
	_ = c.Close()
}

// wait waits until no connection has anything under way, but no longer than
// patience; with none, until there is no connection.
func (g *guests) wait(patience time.Duration) {
	late := false
	if patience > 0 {
		timer := time.AfterFunc(patience, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			late = true
			g.changed.Broadcast()
		})
		defer timer.Stop()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for !late && g.busyLocked(patience == 0) {
		g.changed.Wait()
	}
}

func (g *guests) busyLocked(all bool) bool {
	for _, one := range g.all {
		if all || one.http2 || one.state == http.StateActive {
			return true
		}
	}
	return false
}
