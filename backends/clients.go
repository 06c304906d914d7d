package backends

import (
	"slices"
	"sync"
	"time"

	"mcpgateway/peer"
	"mcpgateway/wire"
)

// sessions are the clients' sessions as far as backends have to know of them.
type sessions struct {
	mu   sync.Mutex
	open map[string]*session
	sole string // the one that was opened last; with Options.Solo there are no others
}

type session struct {
	capabilities []byte
	level        string // from which it wants log messages, "" = it has not said
}

var nothing = []byte("{}")

// Open makes a session known, with the capabilities that its client has declared.
func (s *Set) Open(id string, capabilities []byte) {
	if !wire.IsObject(capabilities) {
		capabilities = nothing
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.sessions.open == nil {
		s.sessions.open = make(map[string]*session)
	}
	s.sessions.open[id] = &session{capabilities: capabilities}
	s.sessions.sole = id
}

// Close forgets a session: the connections that are its own end, and its
// subscriptions over others.
func (s *Set) Close(id string) {
	s.sessions.mu.Lock()
	closing := s.sessions.open[id]
	delete(s.sessions.open, id)
	if s.sessions.sole == id {
		s.sessions.sole = ""
	}
	s.sessions.mu.Unlock()
	if closing == nil {
		return
	}
	for _, b := range s.all {
		b.leave(id)
		if closing.level != "" {
			b.shared.levelled(nil)
		}
	}
}

func (s *Set) isOpen(id string) bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return s.sessions.open[id] != nil
}

func (s *Set) soleSession() string {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return s.sessions.sole
}

func (s *Set) capabilities(id string) []byte {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if one := s.sessions.open[id]; one != nil {
		return one.capabilities
	}
	return nothing
}

// Tell passes a client's notification on to a backend, "" = to each, provided that
// it has a connection for this session alone.
func (s *Set) Tell(id, backend string, m wire.Message) {
	for _, b := range s.all {
		if backend != "" && b.cfg.Name != backend {
			continue
		}
		l := b.line(id, true)
		if l == nil || !l.own() && !s.Solo {
			continue
		}
		if p, _ := l.talk(); p != nil {
			_ = p.Tell(m, "") // one that is gone needs no news
		}
	}
}

// levels are the log levels, the lowest first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

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
		if one.level != "" && (lowest == "" || slices.Index(levels, one.level) < slices.Index(levels, lowest)) {
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
// that can be reached have answered or have had two seconds.
func (s *Set) SetLevel(id, level string, done func()) {
	s.sessions.mu.Lock()
	if one := s.sessions.open[id]; one != nil {
		one.level = level
	}
	s.sessions.mu.Unlock()
	g := &gathering{open: 1, done: done}
	g.timer = time.AfterFunc(levelWait, g.end)
	for _, b := range s.all {
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
	if l.peer == nil || level == "" || level == l.level || !l.server.has("logging") {
		return
	}
	l.level = level
	c := &peer.Pending{To: nobody{}, Timeout: restoring}
	if g != nil {
		g.join()
		c.To = g
	}
	if l.peer.Offer(setLevel(level), c) != nil && g != nil {
		g.leave() // the next conversation begins with it
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

// Progressed implements peer.Asker.
func (g *gathering) Progressed(wire.Message) {}

// Done implements peer.Asker.
func (g *gathering) Done(wire.Message, error) { g.leave() }
