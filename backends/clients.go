package backends

import (
	"sync"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// sessions are the clients' sessions as far as backends have to know of them.
type sessions struct {
	mu   sync.Mutex
	open map[string]*session
	last int // how many there have been
}

type session struct {
	capabilities []byte
	modern       []byte // capabilities, as a request of the stateless era has them
	stateless    bool   // there is none, in fact: it stands for clients of that era
	level        string // from which it wants log messages, "" = it has not said
	number       int    // in the order in which they were opened
}

var nothing = []byte("{}")

// OpenSession makes a session known, with the capabilities that its client has declared.
// Stateless says that it stands for clients that have none.
func (s *Set) OpenSession(id string, capabilities []byte, stateless bool) {
	if !wire.IsObject(capabilities) {
		capabilities = nothing
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.sessions.open == nil {
		s.sessions.open = make(map[string]*session)
	}
	s.sessions.last++
	s.sessions.open[id] = &session{
		capabilities: capabilities, modern: protocol.ClientCapabilitiesToModern(capabilities), stateless: stateless, number: s.sessions.last,
	}
}

// CloseSession forgets a session: the connections that are its own end, and its
// subscriptions over others.
func (s *Set) CloseSession(id string) {
	s.sessions.mu.Lock()
	closing := s.sessions.open[id]
	delete(s.sessions.open, id)
	s.sessions.mu.Unlock()
	if closing == nil {
		return
	}
	for b := range s.now().everyone("") {
		b.leave(id)
		if closing.level != "" {
			b.shared.levelled(nil)
		}
	}
}

// hasSession reports whether a client is known by that session, and so is of that era.
func (s *Set) hasSession(id string) bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	one := s.sessions.open[id]
	return one != nil && !one.stateless
}

func (s *Set) isOpen(id string) bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return s.sessions.open[id] != nil
}

// soleSession returns the session of the only client that there is with Options.Solo,
// "" if it has none. If it has several, because it also asks without one, it is the
// one that was opened last.
func (s *Set) soleSession() string {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	sole, last := "", 0
	for id, one := range s.sessions.open {
		if one.number > last {
			sole, last = id, one.number
		}
	}
	return sole
}

// says returns what a request of the stateless era says of the session that asks: what
// its client can do, and from which level on it wants log messages.
func (s *Set) says(id string) (capabilities []byte, level string) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if one := s.sessions.open[id]; one != nil {
		return one.modern, one.level
	}
	return nothing, ""
}

func (s *Set) capabilities(id string) []byte {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if one := s.sessions.open[id]; one != nil {
		return one.capabilities
	}
	return nothing
}

// Notify passes a client's notification on to a backend, "" = to each, provided that
// it has a connection for this session alone. In the stateless era there is none.
func (s *Set) Notify(id, backend string, m wire.Message) {
	for b := range s.now().everyone(backend) {
		l := b.line(id, true)
		if l == nil || !l.own() && !s.SingleClient {
			continue
		}
		if p, server := l.talk(); p != nil && !server.stateless {
			_ = p.SendNotification(m, "") // one that is gone needs no news
		}
	}
}
