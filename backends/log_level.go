package backends

import (
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// wantedLevel returns the level at which the backend should log: the session's, or the
// lowest of all who share the line, "" if nobody has said.
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
		return "" // nobody hears what is logged there
	}
	for _, one := range all.byID {
		if one.level != "" && (lowest == "" || protocol.LogSeverity(one.level) < protocol.LogSeverity(lowest)) {
			lowest = one.level
		}
	}
	return lowest
}

// levelTimeout is how long a client waits, at most, for the backends to have taken
// its level.
const levelTimeout = 2 * time.Second

// SetLevel has the backends log from a level on, as far as the session is
// concerned, now and whenever a connection is made. It calls done once, when those
// that can be reached have answered or have had two seconds. Those of the stateless
// era are told with each request.
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
	return wire.NewRequest("0", protocol.MethodSetLogLevel, wire.Encode(map[string]string{"level": level}))
}

// sendLevel tells the backend the level, if it is another one than before, for a
// responseGroup that may be nil.
func (bc *backendConn) sendLevel(g *responseGroup) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.sendLevelLocked(g)
}

// sendLevelLocked is levelled. What is wanted is found out, and sent, under l.mu, so
// that of two who change it the later one counts, and that no call overtakes it.
func (bc *backendConn) sendLevelLocked(g *responseGroup) {
	level := bc.wantedLevel()
	if bc.peer == nil || bc.server.modern || level == "" || level == bc.sentLevel || !bc.server.has("logging") {
		return
	}
	bc.sentLevel = level
	c := &peer.Call{Handler: ignoreResponse{}, Timeout: restoreTimeout}
	if g != nil {
		g.add()
		c.Handler = g
	}
	if bc.peer.TrySend(setLevelRequest(level), c) != nil {
		bc.sentLevel = "" // it was not told; the next who asks, or the next conversation, tells it
		if g != nil {
			g.done()
		}
	}
}

// A responseGroup waits for several answers, in whose contents nobody is interested.
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

// Progressed implements peer.ResponseHandler.
func (g *responseGroup) OnProgress(wire.Message) {}

// Done implements peer.ResponseHandler.
func (g *responseGroup) OnResponse(wire.Message, error) { g.done() }
