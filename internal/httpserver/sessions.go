package httpserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/transport"
)

// A sessionTable contains the open sessions.
type sessionTable struct {
	openHandler func(SessionInfo, transport.Writer) SessionHandler // Options.OpenSession
	idleTimeout time.Duration
	// running counts the sessions until Closed has returned, the goroutines in Shutdown, and sweep.
	// Sessions increment it only under mu, before the shutdown.
	running sync.WaitGroup

	mu       sync.Mutex
	limit    openLimit
	sessions map[string]*httpSession // by key
}

// open registers s and creates its handler.
func (t *sessionTable) open(s *httpSession) *httpError {
	s.deliverMu.Lock() // before the session can be found
	defer s.deliverMu.Unlock()
	if herr := t.register(s); herr != nil {
		return herr
	}
	s.handler = t.openHandler(s.info(), s)
	return nil
}

// register adds s to the table and applies the limits; unregister removes it.
func (t *sessionTable) register(s *httpSession) *httpError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if herr := t.limit.acquire(s.from); herr != nil {
		return herr
	}
	t.sessions[s.key] = s
	t.running.Add(1)
	return nil
}

// find returns the session with this key; nil if the key is unknown, or belongs to a session of
// another principal, path or transport.
func (t *sessionTable) find(key string, from sender, httpSSE bool) *httpSession {
	s := t.sessionOf(key, from)
	if s == nil || s.from.profile != from.profile || s.isHTTPSSE() != httpSSE {
		return nil
	}
	s.renew(from)
	return s
}

// findHTTPSSE is find for the messages of HTTP+SSE, whose path does not contain the profile.
func (t *sessionTable) findHTTPSSE(key string, from sender) *httpSession {
	s := t.sessionOf(key, from)
	if s == nil || !s.isHTTPSSE() {
		return nil
	}
	s.renew(from)
	return s
}

// sessionOf returns the session of a principal with this key, nil if there is none. A session is
// also bound to the profiles with which it was opened.
func (t *sessionTable) sessionOf(key string, from sender) *httpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[key]; s != nil && s.from.HasViewOf(from.Principal) {
		return s
	}
	return nil
}

// unregister removes a closed session and calls Closed of its handler on a new goroutine.
func (t *sessionTable) unregister(s *httpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.key] != s {
		return
	}
	delete(t.sessions, s.key)
	t.limit.counter.Release(s.from.Key())
	go func() {
		defer t.running.Done()
		s.currentHandler().Closed(s.reason())
	}()
}

// all returns a snapshot of the open sessions.
func (t *sessionTable) all() []*httpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.sessions))
}

// refuseNew makes open fail from now on.
func (t *sessionTable) refuseNew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit.closing = true
}

// isClosing reports whether refuseNew was called.
func (t *sessionTable) isClosing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit.closing
}

// shutDown shuts down the handlers of all sessions and waits for them. The caller has called
// refuseNew and has ended sweep.
func (t *sessionTable) shutDown() {
	for _, s := range t.all() {
		t.running.Go(func() { s.currentHandler().Shutdown() })
	}
	t.running.Wait()
}

// sweep closes idle sessions until ctx is done. It closes a session at most 1/1000 of the idle
// timeout too late.
func (t *sessionTable) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := t.idleTimeout // also early enough for sessions that are opened later
		for _, s := range t.all() {
			if left := s.closeIfIdle(); left > 0 {
				next = min(next, left)
			}
		}
		timer.Reset(max(next, t.idleTimeout/1000))
	}
}

// newSessionKey returns a new session key, <logID>-<secret>.
func newSessionKey() (key, logID string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:16]) + "-" + hex.EncodeToString(b[16:])
	logID, _, _ = strings.Cut(key, "-")
	return key, logID
}
