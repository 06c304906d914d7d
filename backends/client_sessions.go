package backends

import (
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// clientSessions contains the properties of the client sessions that backends need.
type clientSessions struct {
	mu     lockrank.Mutex[innermostRank]
	byID   map[string]*clientRecord
	opened int // number of sessions so far

	restricted atomic.Int64 // number of open sessions whose principal has profiles
}

// A clientRecord is a session of one legacy client, or stands for modern clients, which have no
// sessions.
type clientRecord struct {
	capabilities       []byte // client capabilities as declared
	modernCapabilities []byte // capabilities, in the form of a modern request
	modern             bool   // it stands for modern clients
	// lowest level of log messages that the client wants; "" = not set
	level string
	order int // position in the order in which sessions were opened

	principal *principal.Principal // nil = without authentication
}

var emptyObject = []byte("{}")

// OpenSession makes a session known, with the capabilities that its client has declared; anything
// but a JSON object counts as {}. If modern is set, the session stands for modern clients, which
// have no sessions. p is the principal of the client.
func (s *Set) OpenSession(
	id string, p *principal.Principal, capabilities []byte, modern bool,
) {
	if !wire.IsObject(capabilities) {
		capabilities = emptyObject
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.sessions.byID == nil {
		s.sessions.byID = make(map[string]*clientRecord)
	}
	s.sessions.opened++
	if p.ProfileKey() != "" && s.sessions.byID[id] == nil {
		s.sessions.restricted.Add(1)
	}
	s.sessions.byID[id] = &clientRecord{
		capabilities:       capabilities,
		modernCapabilities: protocol.ClientCapabilitiesToModern(capabilities),
		modern:             modern, order: s.sessions.opened, principal: p,
	}
}

// CloseSession forgets a session: its own connections and its subscriptions over shared connections
// end, and its calls that wait for a slot fail. It ignores an unknown session.
func (s *Set) CloseSession(id string) {
	s.sessions.mu.Lock()
	closing := s.sessions.byID[id]
	delete(s.sessions.byID, id)
	s.sessions.mu.Unlock()
	if closing == nil {
		return
	}
	if closing.principal.ProfileKey() != "" {
		defer s.sessions.restricted.Add(-1)
	}
	for b := range s.current().withName("") {
		b.endSession(id)
		b.instances.sessionEnded(closing.principal.Key())
		if closing.level != "" {
			b.shared.sendLevel(nil)
		}
	}
}

// isClient reports whether id is the session of a legacy client.
func (cs *clientSessions) isClient(id string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	one := cs.byID[id]
	return one != nil && !one.modern
}

// principal returns the principal of a session; nil = unknown session or no authentication.
func (cs *clientSessions) principal(id string) *principal.Principal {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.byID[id]; one != nil {
		return one.principal
	}
	return nil
}

// identity returns the principal of a session; open is false if the session is not open.
func (cs *clientSessions) identity(id string) (p *principal.Principal, open bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.byID[id]; one != nil {
		return one.principal, true
	}
	return nil, false
}

// principals returns the keys of the principals that have an open session.
func (cs *clientSessions) principals() map[string]bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	keys := make(map[string]bool)
	for _, one := range cs.byID {
		keys[one.principal.Key()] = true
	}
	return keys
}

// restrictedPrincipal returns the principal of a session if it has profiles, nil otherwise.
func (cs *clientSessions) restrictedPrincipal(id string) *principal.Principal {
	if cs.restricted.Load() == 0 {
		return nil
	}
	if p := cs.principal(id); p.ProfileKey() != "" {
		return p
	}
	return nil
}

func (cs *clientSessions) isOpen(id string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.byID[id] != nil
}

// sole is meant for Options.SingleClient. It returns the session of the only client, "" if
// the client has none. If the client has several, because it also sends modern requests,
// sole returns the session that was opened last.
func (cs *clientSessions) sole() string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	sole, last := "", 0
	for id, one := range cs.byID {
		if one.order > last {
			sole, last = id, one.order
		}
	}
	return sole
}

// requestMeta returns the client metadata of a session for a modern request: the capabilities of
// its client, and its log level. For an unknown session these are {} and "".
func (cs *clientSessions) requestMeta(id string) (capabilities []byte, level string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.byID[id]; one != nil {
		return one.modernCapabilities, one.level
	}
	return emptyObject, ""
}

// capabilities returns the capabilities of a session's client, and whether the session is open. For
// an unknown session these are {} and false.
func (cs *clientSessions) capabilities(id string) (capabilities []byte, open bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.byID[id]; one != nil {
		return one.capabilities, true
	}
	return emptyObject, false
}

// Notify forwards a client's notification to a backend; "" = to all backends. It uses only
// connections that are ready and serve this client alone, and sends nothing to modern backends and
// to backends that the profiles of the client do not permit.
func (s *Set) Notify(id, backend string, m wire.Message) {
	who := s.sessions.principal(id)
	for b := range s.current().withName(backend) {
		bc := b.conn(id, true)
		if bc == nil || !bc.isPerSession() && !s.SingleClient || !b.isFor(who) {
			continue
		}
		if l := bc.current(); l != nil && !l.isModern() {
			_ = l.peer.SendNotification(m, "") // a closed connection needs no notification
		}
	}
}

// level returns the log level of a session; for the session "", the lowest level of all sessions
// whose principals may use the backend. The result is "" if no level is set.
func (cs *clientSessions) level(session string, b *Backend) (lowest string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if session != "" {
		if one := cs.byID[session]; one != nil {
			return one.level
		}
		return ""
	}
	for _, one := range cs.byID {
		if one.level != "" && b.isFor(one.principal) &&
			(lowest == "" || protocol.LogSeverity(one.level) < protocol.LogSeverity(lowest)) {
			lowest = one.level
		}
	}
	return lowest
}

// levelTimeout is the longest time for which SetLevel waits for the responses of the backends.
const levelTimeout = 2 * time.Second

// SetLevel sets a session's log level at the backends that its profiles permit, now and on each new
// connection. It calls done once, when the connected backends have responded, or after
// levelTimeout. Modern backends get the level with each request.
func (s *Set) SetLevel(id, level string, done func()) {
	s.sessions.mu.Lock()
	if one := s.sessions.byID[id]; one != nil {
		one.level = level
	}
	s.sessions.mu.Unlock()
	who := s.sessions.principal(id)
	g := &responseGroup{pending: 1, onComplete: done}
	g.timer = time.AfterFunc(levelTimeout, g.complete)
	for b := range s.current().running() {
		if bc := b.conn(id, true); bc != nil && b.isFor(who) {
			bc.sendLevel(g)
		}
	}
	g.done()
}
