package backends

import (
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// wanted returns the level at which the backend should log: the session's, or the
// lowest of all who share the line, "" if nobody has said.
func (l *line) wanted() string {
	all := &l.b.set.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	if l.own() {
		if one := all.open[l.session]; one != nil {
			return one.level
		}
		return ""
	}
	lowest := ""
	if l.b.private() {
		return "" // nobody hears what is logged there
	}
	for _, one := range all.open {
		if one.level != "" && (lowest == "" || protocol.LogSeverity(one.level) < protocol.LogSeverity(lowest)) {
			lowest = one.level
		}
	}
	return lowest
}

// levelWait is how long a client waits, at most, for the backends to have taken
// its level.
const levelWait = 2 * time.Second

// SetLevel has the backends log from a level on, as far as the session is
// concerned, now and whenever a connection is made. It calls done once, when those
// that can be reached have answered or have had two seconds. Those of the stateless
// era are told with each request.
func (s *Set) SetLevel(id, level string, done func()) {
	s.sessions.mu.Lock()
	if one := s.sessions.open[id]; one != nil {
		one.level = level
	}
	s.sessions.mu.Unlock()
	g := &gathering{open: 1, done: done}
	g.timer = time.AfterFunc(levelWait, g.end)
	for _, b := range s.now().all {
		if l := b.line(id, true); l != nil {
			l.levelled(g)
		}
	}
	g.leave()
}

func setLevel(level string) wire.Message {
	return wire.NewRequest("0", "logging/setLevel", wire.Encode(map[string]string{"level": level}))
}

// levelled tells the backend the level, if it is another one than before, for a
// gathering that may be nil.
func (l *line) levelled(g *gathering) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.levelLocked(g)
}

// levelLocked is levelled. What is wanted is found out, and sent, under l.mu, so
// that of two who change it the later one counts, and that no call overtakes it.
func (l *line) levelLocked(g *gathering) {
	level := l.wanted()
	if l.peer == nil || l.server.stateless || level == "" || level == l.level || !l.server.has("logging") {
		return
	}
	l.level = level
	c := &peer.Call{Handler: nobody{}, Timeout: restoring}
	if g != nil {
		g.join()
		c.Handler = g
	}
	if l.peer.TrySend(setLevel(level), c) != nil {
		l.level = "" // it was not told; the next who asks, or the next conversation, tells it
		if g != nil {
			g.leave()
		}
	}
}

// A gathering waits for several answers, in whose contents nobody is interested.
type gathering struct {
	timer *time.Timer
	once  sync.Once
	done  func()

	mu   sync.Mutex
	open int
}

func (g *gathering) join() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open++
}

func (g *gathering) leave() {
	g.mu.Lock()
	g.open--
	last := g.open == 0
	g.mu.Unlock()
	if last {
		g.timer.Stop()
		g.end()
	}
}

func (g *gathering) end() { g.once.Do(g.done) }

// Progressed implements peer.ResponseHandler.
func (g *gathering) OnProgress(wire.Message) {}

// Done implements peer.ResponseHandler.
func (g *gathering) OnResponse(wire.Message, error) { g.leave() }
