package backends

import (
	"sync"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// clientSessions are the clients' sessions as far as backends have to know of them.
type clientSessions struct {
	mu     sync.Mutex
	byID   map[string]*clientRecord
	opened int // how many there have been
}

type clientRecord struct {
	capabilities       []byte
	modernCapabilities []byte // capabilities, as a request of the stateless era has them
	sessionless        bool   // there is none, in fact: it stands for clients of that era
	level              string // from which it wants log messages, "" = it has not said
	order              int    // in the order in which they were opened
}

var emptyObject = []byte("{}")

// OpenSession makes a session known, with the capabilities that its client has declared.
// Stateless says that it stands for clients that have none.
func (s *Set) OpenSession(id string, capabilities []byte, stateless bool) {
	if !wire.IsObject(capabilities) {
		capabilities = emptyObject
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.sessions.byID == nil {
		s.sessions.byID = make(map[string]*clientRecord)
	}
	s.sessions.opened++
	s.sessions.byID[id] = &clientRecord{
		capabilities: capabilities, modernCapabilities: protocol.ClientCapabilitiesToModern(capabilities), sessionless: stateless, order: s.sessions.opened,
	}
}

// CloseSession forgets a session: the connections that are its own end, and its
// subscriptions over others.
func (s *Set) CloseSession(id string) {
	s.sessions.mu.Lock()
	closing := s.sessions.byID[id]
	delete(s.sessions.byID, id)
	s.sessions.mu.Unlock()
	if closing == nil {
		return
	}
	for b := range s.current().withName("") {
		b.endSession(id)
		if closing.level != "" {
			b.shared.sendLevel(nil)
		}
	}
}

// isSessionClient reports whether a client is known by that session, and so is of that era.
func (s *Set) isSessionClient(id string) bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	one := s.sessions.byID[id]
	return one != nil && !one.sessionless
}

func (s *Set) isSessionOpen(id string) bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return s.sessions.byID[id] != nil
}

// soleSession returns the session of the only client that there is with Options.Solo,
// "" if it has none. If it has several, because it also asks without one, it is the
// one that was opened last.
func (s *Set) soleSession() string {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	sole, last := "", 0
	for id, one := range s.sessions.byID {
		if one.order > last {
			sole, last = id, one.order
		}
	}
	return sole
}

// requestMeta returns what a request of the stateless era says of the session that asks: what
// its client can do, and from which level on it wants log messages.
func (s *Set) requestMeta(id string) (capabilities []byte, level string) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if one := s.sessions.byID[id]; one != nil {
		return one.modernCapabilities, one.level
	}
	return emptyObject, ""
}

func (s *Set) clientCapabilities(id string) []byte {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if one := s.sessions.byID[id]; one != nil {
		return one.capabilities
	}
	return emptyObject
}

// Notify passes a client's notification on to a backend, "" = to each, provided that
// it has a connection for this session alone. In the stateless era there is none.
func (s *Set) Notify(id, backend string, m wire.Message) {
	for b := range s.current().withName(backend) {
		bc := b.conn(id, true)
		if bc == nil || !bc.isPerSession() && !s.SingleClient {
			continue
		}
		if p, server := bc.currentPeer(); p != nil && !server.modern {
			_ = p.SendNotification(m, "") // one that is gone needs no news
		}
	}
}
