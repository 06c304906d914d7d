package backends

import (
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// wantedLevel returns the level at which the backend should log: the level of the session, or the
// lowest level of all sessions that share the connection; "" if none is set.
func (bc *backendConn) wantedLevel() string {
	all := &bc.b.set.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	if bc.isPerSession() {
		if one := all.byID[bc.session]; one != nil {
			return one.level
		}
		return ""
	}
	lowest := ""
	if bc.b.hasPerSessionConns() {
		return "" // no session receives log messages from it
	}
	for _, one := range all.byID {
		if one.level != "" &&
			(lowest == "" || protocol.LogSeverity(one.level) < protocol.LogSeverity(lowest)) {
			lowest = one.level
		}
	}
	return lowest
}

// levelTimeout is the longest time for which SetLevel waits for the responses of the backends.
const levelTimeout = 2 * time.Second

// SetLevel sets a session's log level at the backends, now and on each new connection. It calls
// done once, when the connected backends have responded, or after levelTimeout. Modern backends
// get the level with each request.
func (s *Set) SetLevel(id, level string, done func()) {
	s.sessions.mu.Lock()
	if one := s.sessions.byID[id]; one != nil {
		one.level = level
	}
	s.sessions.mu.Unlock()
	g := &responseGroup{pending: 1, onComplete: done}
	g.timer = time.AfterFunc(levelTimeout, g.complete)
	for _, b := range s.current().all {
		if bc := b.conn(id, true); bc != nil {
			bc.sendLevel(g)
		}
	}
	g.done()
}

func setLevelRequest(level string) wire.Message {
	return wire.NewRequest("0", protocol.MethodSetLogLevel,
		wire.Encode(map[string]string{"level": level}))
}

// sendLevel sends the wanted level to the backend, if the level has changed and the backend is
// ready, legacy, and declares logging. If g is not nil, g waits for the response.
func (bc *backendConn) sendLevel(g *responseGroup) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.sendLevelLocked(g)
}

// sendLevelLocked determines and sends the level while bc.mu is held, so that the later one of two
// concurrent changes counts, and no call overtakes the level.
func (bc *backendConn) sendLevelLocked(g *responseGroup) {
	level := bc.wantedLevel()
	if bc.peer == nil || bc.server.modern || level == "" || level == bc.sentLevel ||
		!bc.server.has("logging") {
		return
	}
	bc.sentLevel = level
	c := &peer.Call{Handler: ignoreResponse{}, Timeout: restoreTimeout}
	if g != nil {
		g.add()
		c.Handler = g
	}
	if bc.peer.TrySend(setLevelRequest(level), c) != nil {
		bc.sentLevel = "" // not sent; the next sendLevel retries
		if g != nil {
			g.done()
		}
	}
}

// A responseGroup waits for several responses whose contents do not matter.
type responseGroup struct {
	timer      *time.Timer
	once       sync.Once
	onComplete func()

	mu      sync.Mutex
	pending int
}

func (g *responseGroup) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending++
}

func (g *responseGroup) done() {
	g.mu.Lock()
	g.pending--
	last := g.pending == 0
	g.mu.Unlock()
	if last {
		g.timer.Stop()
		g.complete()
	}
}

func (g *responseGroup) complete() { g.once.Do(g.onComplete) }

// OnProgress implements peer.ResponseHandler.
func (g *responseGroup) OnProgress(wire.Message) {}

// OnResponse implements peer.ResponseHandler.
func (g *responseGroup) OnResponse(wire.Message, error) { g.done() }
