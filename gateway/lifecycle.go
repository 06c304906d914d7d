package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A sessionState is the lifecycle state of a session (MCP lifecycle, revisions up to 2025-11-25):
//
//	uninitialized ─ initialize answered → awaitingInitialized
//	   ─ notifications/initialized → ready → closing
type sessionState uint8

const (
	uninitialized       sessionState = iota // only initialize and ping are allowed
	awaitingInitialized                     // initialize was answered
	ready
	closing // the client has disconnected, or the gateway is shutting down
)

// admit is the lifecycle table: a pure function of the state and the method of a request. It
// returns an error, or whether the request must wait, for a limited time, for
// notifications/initialized. It gets no legacy pings, because package peer responds to these in
// every state.
func admit(s sessionState, method string) (queue bool, err *wire.Error) {
	switch {
	case method == protocol.MethodServerDiscover:
		// A client of a later revision sends server/discover first, to detect a legacy server. The
		// response must not depend on the handshake.
		return false, methodNotFound(method)
	case s == closing:
		return false, errClosing
	case method == protocol.MethodInitialize && s == uninitialized:
		return false, nil
	case method == protocol.MethodInitialize:
		return false, errInitialized
	case s == uninitialized:
		return false, errNotInitialized
	}
	return s == awaitingInitialized, nil
}

// A lifecycle is the state of a session and the result of its handshake. It queues requests that
// arrive before notifications/initialized. The zero value is uninitialized. Its methods may be
// called concurrently.
type lifecycle struct {
	negotiated atomic.Pointer[negotiated] // nil before the handshake

	mu     sync.Mutex
	state  sessionState
	queued queuedRequests
	timer  *time.Timer // of initializedTimeout
	expiry time.Time   // earliest time at which the requests in queued expire
}

// queuedRequests are requests that wait for notifications/initialized.
type queuedRequests struct {
	requests       []*peer.Request  // of the client, open; their number is bounded by MaxInFlight
	serverRequests []*serverRequest // of backends, open; bounded by callTracker.reserveRequest
}

// initializedTimeout is the time for which a request waits for notifications/initialized. On some
// transports the request may arrive before the notification.
const initializedTimeout = 2 * time.Second

func (l *lifecycle) current() sessionState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// handshake returns the result of the handshake. It must not be changed.
func (l *lifecycle) handshake() *negotiated {
	if n := l.negotiated.Load(); n != nil {
		return n
	}
	return &negotiated{}
}

// admit decides about a client's request. A request that must wait is queued, and expired is called
// if initializedTimeout expires before the queue is taken.
func (l *lifecycle) admit(r *peer.Request, expired func()) (queued bool, err *wire.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queued, err = admit(l.state, r.Method())
	if queued {
		l.startTimerLocked(expired)
		l.queued.requests = append(l.queued.requests, r)
	}
	return queued, err
}

// queueEarly queues a backend's request like admit. It returns false, and does not queue the
// request, if the handshake or the session has ended.
func (l *lifecycle) queueEarly(sr *serverRequest, expired func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != uninitialized && l.state != awaitingInitialized {
		return false
	}
	l.startTimerLocked(expired)
	l.queued.serverRequests = append(l.queued.serverRequests, sr)
	return true
}

// withdraw removes a cancelled request from the queue. It returns false if the request is not
// queued.
func (l *lifecycle) withdraw(r *peer.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return withdrawLocked(l, &l.queued.requests, r)
}

// withdrawEarly removes a cancelled request of a backend from the queue, if it is queued.
func (l *lifecycle) withdrawEarly(sr *serverRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	withdrawLocked(l, &l.queued.serverRequests, sr)
}

func withdrawLocked[R comparable](l *lifecycle, queue *[]R, r R) bool {
	i := slices.Index(*queue, r)
	if i < 0 {
		return false
	}
	*queue = slices.Delete(*queue, i, i+1)
	if len(l.queued.requests)+len(l.queued.serverRequests) == 0 {
		l.timer.Stop()
	}
	return true
}

func (l *lifecycle) startTimerLocked(expired func()) {
	if len(l.queued.requests)+len(l.queued.serverRequests) == 0 {
		l.expiry = time.Now().Add(initializedTimeout)
		l.timer = time.AfterFunc(initializedTimeout, expired)
	}
}

// negotiate stores the client's part of the handshake. A running backend may send the client a
// request from now on.
func (l *lifecycle) negotiate(n *negotiated) { l.negotiated.Store(n) }

// answered notes that initialize was answered with these server capabilities.
func (l *lifecycle) answered(serverCaps []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := *l.handshake()
	n.serverCaps, n.offersTasks = serverCaps, catalog.Declares(serverCaps, "tasks")
	l.negotiated.Store(&n)
	if l.state == uninitialized { // it may already be closing
		l.state = awaitingInitialized
	}
}

// initialized notes the arrival of notifications/initialized, and takes the queued requests.
func (l *lifecycle) initialized() queuedRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == awaitingInitialized {
		l.state = ready
	}
	return l.takeLocked()
}

// close notes the end of the session, and takes the queued requests.
func (l *lifecycle) close() queuedRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = closing
	return l.takeLocked()
}

// takeExpired takes the queued requests if notifications/initialized is still missing.
func (l *lifecycle) takeExpired() queuedRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != awaitingInitialized || time.Now().Before(l.expiry) { // called by an earlier timer
		return queuedRequests{}
	}
	return l.takeLocked()
}

func (l *lifecycle) takeLocked() queuedRequests {
	if l.timer != nil {
		l.timer.Stop()
	}
	q := l.queued
	l.queued = queuedRequests{}
	return q
}

// negotiated is the result of the handshake. It is not changed, only replaced. The zero value
// allows no requests to the client.
type negotiated struct {
	Revision protocol.Features
	Name     string // name/version

	clientCaps  []byte // as declared by the client, JSON
	serverCaps  []byte // as sent to the client, JSON
	offersTasks bool   // serverCaps include tasks
}

// clientDeclares reports whether the client has declared a capability.
func (n *negotiated) clientDeclares(path ...string) bool {
	return catalog.Declares(n.clientCaps, path...)
}

// serverDeclares reports whether the client was sent a server capability.
func (n *negotiated) serverDeclares(path ...string) bool {
	return catalog.Declares(n.serverCaps, path...)
}
