package backends

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/oauthclient"
)

// A backendConn is a logical connection to a backend. It reconnects: it has at most one network
// connection or process at a time (a link), and queues for the calls that wait for the next one.
//
// Each backend has one connection that all sessions share. The gateway keeps it up, unless the
// backend is lazy or idle, and reads the lists over it. A client session that needs a connection of
// its own (see Backend.needsSessionConn) opens it on first use, and the connection declares the
// capabilities of that client. A modern backend receives the capabilities with each request, so
// sessions share one connection to it.
type backendConn struct {
	b       *Backend
	session string // session of a per-session connection; "" = shared connection
	log     *slog.Logger
	// rate-limited, for records that may be frequent, such as those about the output of the backend
	outputLog *slog.Logger
	starts    startLoop

	mu        lockrank.Mutex[stateRank]
	sup       supervise.Supervisor
	phase     connPhase
	startedAt time.Time
	link      *link // the ready link; nil = none
	pid       int   // of its process; 0 = none
	calls     connQueues
	subs      subscriptions
}

// A connPhase is what happens to the calls and subscriptions of a backendConn.
//
//	open → draining | merged | closed
//	draining → closed
type connPhase uint8

const (
	connOpen     connPhase = iota
	connDraining           // its backend is draining: calls and subscriptions go to the successor
	connMerged             // calls and subscriptions go to the shared connection
	connClosed             // its session is over
)

func newBackendConn(b *Backend, session string) *backendConn {
	bc := &backendConn{b: b, session: session, log: b.log, outputLog: b.outputLog,
		sup: supervise.New(time.Now(), b.set.changes.note)}
	bc.starts = newStartLoop(bc)
	bc.subs.reopen = make(chan struct{}, 1)
	bc.calls.remove = func(q *queuedCall) bool {
		bc.mu.Lock()
		defer bc.mu.Unlock()
		return bc.calls.removeLocked(q)
	}
	if session != "" {
		attrs := []any{"session", session}
		if b.instances.owner == nil {
			attrs = append(attrs, b.set.sessions.principal(session).LogAttrs()...)
		}
		bc.log, bc.outputLog = b.log.With(attrs...), b.outputLog.With(attrs...)
	}
	return bc
}

func (bc *backendConn) isPerSession() bool { return bc.session != "" }

// current returns the ready link, nil if there is none.
func (bc *backendConn) current() *link {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.link
}

// setPID notes the process of the connection; 0 = none.
func (bc *backendConn) setPID(pid int) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.pid = pid
}

func (bc *backendConn) startTime() time.Time {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.startedAt
}

func (bc *backendConn) reachedReady() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.ReachedReady()
}

// wasReady reports whether the connection has ever become ready.
func (bc *backendConn) wasReady() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.WasReady()
}

func (bc *backendConn) lastStartFailed() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.LastStartFailed()
}

// isBackingOff reports whether the connection has failed and waits for the next try.
func (bc *backendConn) isBackingOff() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return !bc.sup.RetryAt().IsZero()
}

// wake starts the shared connection if it is stopped until there is demand.
func (bc *backendConn) wake() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.wakeLocked()
}

// wakeLocked starts a shared connection that is stopped until there is demand. For a per-session
// connection it starts the goroutine that connects, unless this goroutine runs already or the
// session is over. If the gateway is ending, the per-session connection is stopped permanently
// instead.
func (bc *backendConn) wakeLocked() {
	switch {
	case !bc.isPerSession():
		if bc.sup.State() == Stopped {
			signal(bc.starts.wakeup)
		}
	case bc.starts.running || bc.phase == connClosed:
	case bc.b.lifetime.goWorker(bc.starts.runPerSession):
		bc.starts.running = true
	default:
		bc.sup.Stop(time.Now(), errStopped)
	}
}

// markStarting notes that a start begins.
func (bc *backendConn) markStarting() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	select {
	case <-bc.starts.wakeup: // this start fulfills the request
	default:
	}
	bc.startedAt = time.Now()
	bc.sup.Start(bc.startedAt)
}

// markFailed notes that a start failed or a connection ended, and the reason. Queued calls fail
// unless they can wait for the next try. After a failure of the shared connection the backend
// counts as settled.
func (bc *backendConn) markFailed(err error) {
	now := time.Now()
	needsLogin := isA[*oauthclient.LoginError](err)
	bc.mu.Lock()
	if needsLogin {
		bc.sup.AwaitLogin(now, err)
	} else {
		bc.sup.Failed(now, err, rand.Float64())
	}
	why := notSent("it did not start: %w", err)
	if bc.sup.ReachedReady() || needsLogin {
		why = notSent("%w", bc.sup.RejectError(now))
	}
	var dropped []*queuedCall
	if bc.sup.Disposition(now) == supervise.RejectCall {
		dropped = bc.calls.take()
	}
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
}

// markStopped notes that the connection was stopped permanently, and the reason. Queued calls fail.
// If the shared connection was stopped, the backend then counts as settled.
func (bc *backendConn) markStopped(why error) {
	bc.mu.Lock()
	bc.sup.Stop(time.Now(), why)
	dropped := bc.calls.take()
	bc.mu.Unlock()
	bc.failCalls(dropped, notSent("it did not start: %w", why))
}

// failCalls fails calls that were queued. If bc is the shared connection, the backend then counts
// as settled.
func (bc *backendConn) failCalls(dropped []*queuedCall, why error) {
	failAll(dropped, why)
	if !bc.isPerSession() {
		bc.b.settle()
	}
}

// close closes a per-session connection, because its session is over, and lets its link end. It
// does not wait for the end.
func (bc *backendConn) close() {
	bc.mu.Lock()
	if bc.phase != connMerged {
		bc.phase = connClosed
	}
	disconnect := bc.starts.disconnect
	bc.mu.Unlock()
	if disconnect != nil {
		disconnect()
	}
}

// whyUnavailable returns the current fault of the backend, nil if no fault is known. If the backend
// is not running, the fault has the form of the error of a failed call.
func (bc *backendConn) whyUnavailable() error {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	now := time.Now()
	switch why := bc.sup.Problem(); {
	case bc.sup.Disposition(now) == supervise.RejectCall:
		return notSent("%w", bc.sup.RejectError(now))
	case why != nil && !bc.sup.State().IsUp():
		return notSent("it is not running: %w", why)
	default:
		return why
	}
}

// whyDown returns the reason why the connection is not up, nil if it is up or no reason is known.
func (bc *backendConn) whyDown() error {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.sup.State().IsUp() {
		return nil
	}
	return bc.sup.Problem()
}

// history returns what has happened to the connection.
func (bc *backendConn) history() supervise.History {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.History()
}

// setIssue sets an issue of a connected backend; nil = it is resolved. It logs when the backend
// becomes degraded, except for IssueLists, or ready again.
func (bc *backendConn) setIssue(which supervise.HealthIssue, err error) {
	bc.mu.Lock()
	before := bc.sup.State()
	bc.sup.SetIssue(time.Now(), which, err)
	after := bc.sup.State()
	if bc.link != nil {
		bc.link.unreachable.Store(bc.sup.HasIssue(supervise.IssueUnreachable))
	}
	bc.mu.Unlock()
	switch {
	case before == after:
	case after == Degraded && which != supervise.IssueLists: // logged by listReader
		bc.log.Warn("backend degraded; calls still sent to it", "err", err)
	case before == Degraded && after == Ready:
		bc.log.Info("backend no longer degraded")
	}
}

func (bc *backendConn) hasIssue(which supervise.HealthIssue) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.HasIssue(which)
}

// capabilitiesToDeclare returns the capabilities for the handshake: the capabilities of the client
// of the connection. If several clients share the connection, none are declared, because a request
// of the backend could not be attributed to a client.
func (bc *backendConn) capabilitiesToDeclare() []byte {
	session := bc.session
	if session == "" && bc.b.set.SingleClient {
		session = bc.b.set.sessions.sole()
	}
	declared, _ := bc.b.set.sessions.capabilities(session)
	return declared
}

// capabilitiesDiffer reports whether the backend is legacy and the capabilities declared to it
// differ from those of a session. They may differ because a client may list entries before it
// declares its capabilities, and because modern clients declare them with each request. While the
// connection is down, the capabilities for the next handshake are unknown, and capabilitiesDiffer
// reports false; queued calls are checked after that handshake (belongsElsewhere).
func (bc *backendConn) capabilitiesDiffer(session string) bool {
	l := bc.current()
	return l != nil && !l.isModern() && l.capabilitiesDiffer(session)
}

// wantedLevel returns the level at which the backend should log: the level of the session, or the
// lowest level of all sessions that may use the shared connection; "" if none is set.
func (bc *backendConn) wantedLevel() string {
	if !bc.isPerSession() && bc.b.hasPerSessionConns() {
		return "" // no session receives log messages from it
	}
	return bc.b.set.sessions.level(bc.session, bc.b)
}

// sendLevel sends the wanted level to the backend, if the level has changed and the backend is
// ready, legacy, and declares logging. If g is not nil, g waits for the response.
func (bc *backendConn) sendLevel(g *responseGroup) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.link != nil {
		bc.link.sendLevelLocked(g)
	}
}
