package backends

import (
	"sync"

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
