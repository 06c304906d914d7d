package backends

import (
	"math/rand/v2"
	"time"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/backends/internal/supervise"
)

// sessionConns contains the per-session connections of a backend, and the breaker that they share.
type sessionConns struct {
	// serializes the opening of connections, so that no connection is visible before it has the
	// subscriptions of its session
	opening lockrank.Mutex[openingRank]

	mu        lockrank.Mutex[stateRank]
	draining  bool // the backend is draining; written with opening and mu held
	bySession map[string]*backendConn
	breaker   supervise.SessionBreaker
}

// get returns a session's connection, nil if there is none.
func (sc *sessionConns) get(session string) *backendConn {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.bySession[session]
}

func (sc *sessionConns) all() (all []*backendConn) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, bc := range sc.bySession {
		all = append(all, bc)
	}
	return all
}

// removeSession removes and returns a session's connection, nil if there is none.
func (sc *sessionConns) removeSession(session string) *backendConn {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	bc := sc.bySession[session]
	delete(sc.bySession, session)
	return bc
}

// remove removes a connection, if it is still that of its session.
func (sc *sessionConns) remove(bc *backendConn) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.bySession[bc.session] == bc {
		delete(sc.bySession, bc.session)
	}
}

// drain prevents the opening of further connections, and returns all that exist. It waits for a
// connection that is being opened, so that drain finds each subscription.
func (sc *sessionConns) drain() []*backendConn {
	sc.opening.Lock()
	defer sc.opening.Unlock()
	sc.mu.Lock()
	sc.draining = true
	sc.mu.Unlock()
	return sc.all()
}

// open creates a session's own connection, or returns the connection that another goroutine has
// just created. The session's accepted subscriptions move there from the shared connection, because
// from now on the session's calls change the state of another server process. If the session is
// over, the connection is closed from the start. If the backend is draining, the connection is not
// stored, and redirects its calls.
func (sc *sessionConns) open(b *Backend, session string) *backendConn {
	sc.opening.Lock()
	defer sc.opening.Unlock()
	if bc := sc.get(session); bc != nil {
		return bc
	}
	bc := newBackendConn(b, session)
	if sc.draining {
		bc.phase = connDraining
		return bc // drain moves the session's subscriptions
	}
	bc.put(session, b.shared.dropSubscriptions(session, true), false)
	sc.mu.Lock()
	defer sc.mu.Unlock()
	switch {
	case b.set.sessions.isOpen(session):
		if sc.bySession == nil {
			sc.bySession = make(map[string]*backendConn)
		}
		sc.bySession[session] = bc
	default:
		bc.phase = connClosed
		bc.sup.Stop(time.Now(), errSessionOver)
	}
	return bc
}

// allowStart requests the start of a connection. If it is refused, reason is not nil, and next is
// the time for the next request.
func (sc *sessionConns) allowStart(now time.Time) (next time.Time, reason error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.breaker.AllowStart(now, rand.Float64())
}

// noteEnded updates the breaker after the end of a connection, which may be the shared one.
func (sc *sessionConns) noteEnded(bc *backendConn, wasReady bool, breaker supervise.Breaker) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	switch {
	case !bc.isPerSession():
		sc.breaker.SharedEnded(breaker)
	case !wasReady:
		sc.breaker.Failed(time.Now(), bc.session, breaker.Reason(), rand.Float64())
	}
}

// noteStarted updates the breaker after a successful start of a connection, which may be the shared
// one.
func (sc *sessionConns) noteStarted(bc *backendConn) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if bc.isPerSession() {
		sc.breaker.Up()
	} else {
		sc.breaker.SharedUp()
	}
}

// resetBreaker allows the opening of connections although connections of other sessions have
// failed.
func (sc *sessionConns) resetBreaker() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.breaker = supervise.SessionBreaker{}
}
