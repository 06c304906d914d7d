package gateway

import (
	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// HandleNotification hands on a notification of a backend's to the client that a session is
// with, "" if it is not certain whose it is. On is the stream on which it came.
// It does not wait. What nobody knows here is dropped, and
// so is what may be meant for another client.
func (g *Gateway) HandleNotification(session, backend string, m wire.Message, on peer.Origin) {
	switch m.Method() {
	case mcp.MethodNotificationTasksStatus, protocol.MethodNotificationTasks:
		g.taskChanged(backend, m)
	}
	if guest := g.guests.named(session); guest != nil {
		guest.told(backend, m, on)
		return
	}
	method := m.Method()
	switch method {
	case string(mcp.MethodNotificationMessage):
		s := g.session(session)
		if session == "" {
			s = g.named(backend, m)
		}
		if s != nil {
			s.pass(backend, m, on)
		}
	case mcp.MethodNotificationToolsListChanged, mcp.MethodNotificationPromptsListChanged, mcp.MethodNotificationResourcesListChanged:
		if s := g.session(session); s != nil && s.learns(method, g.Backends.View().Snapshot) {
			s.tell(wire.NewNotification(method, nil), "")
		}
	case mcp.MethodNotificationResourceUpdated:
		if s := g.session(session); s != nil && s.offers("resources", "subscribe") {
			s.updated(backend, m)
		}
	case string(mcp.MethodNotificationElicitationComplete):
		id := stringAt(m, "params", "elicitationId")
		if s := g.whose(session, func(s *Session) bool { return s.elicited.has(backend, id) }); s != nil {
			s.tell(m, "")
		}
	case mcp.MethodNotificationTasksStatus:
		g.taskStatus(session, backend, m, on)
	default:
		g.Log.Debug("dropped a notification", "backend", backend, "method", brief(method))
	}
}

// whose returns the session to which something is known: the one given, or else
// the only one.
func (g *Gateway) whose(session string, known func(*Session) bool) *Session {
	if session == "" {
		return g.only(known)
	}
	if s := g.session(session); s != nil && known(s) {
		return s
	}
	return nil
}

func (g *Gateway) taskStatus(session, backend string, m wire.Message, on peer.Origin) {
	if err := protocol.CheckTask(m.Part(wire.PartParams)); err != nil {
		g.Log.Debug("dropped a notification", "backend", backend, "method", m.Method(), "err", err)
		return
	}
	id := stringAt(m, "params", "taskId")
	s := g.whose(session, func(s *Session) bool {
		_, ok := s.tasks.expose(backend, id)
		return ok
	})
	if s == nil {
		if s = g.session(session); s != nil {
			s.keepStatus(backend, m, on)
		}
		return
	}
	s.taskIs(backend, id, stringAt(m, "params", "status"))
	if exposed, ok := s.tasks.expose(backend, id); ok {
		s.tell(exchange(m, id, exposed, "params", "taskId"), "")
	}
}

// pass passes a log message on, if the client wants any of its level. Its logger
// is the backend, or one of its own.
func (s *Session) pass(backend string, m wire.Message, stream peer.Origin) {
	if !s.offers("logging") || !s.wants(stringAt(m, "params", "level")) || s.isCrowded(backend) {
		return
	}
	on := s.cause(backend, m, stream).on()
	m = logged(backend, m)
	s.mu.Lock()
	early := s.state == greeted // then "server SHOULD NOT send requests … other than pings and logging" (lifecycle)
	s.mu.Unlock()
	if m = s.exposeTasks(backend, m); early {
		_ = s.peer.SendNotification(m, on)
		return
	}
	s.tell(m, on)
}

// logged returns a log message with its backend in front of its logger.
func logged(backend string, m wire.Message) wire.Message {
	switch logger, _ := wire.Lookup(m.Part(wire.PartParams), "logger"); {
	case wire.IsNull(logger):
		m, _ = m.Set(wire.Quote(backend), "params", "logger")
	case logger[0] == '"':
		m, _ = m.Set(prefixed(backend+"/", logger), "params", "logger")
	}
	return m
}

// tell sends the client a notification that belongs to a request of its, "" if
// to none. Before the handshake is over and after the client's last there is no
// one to tell.
func (s *Session) tell(m wire.Message, on wire.ID) {
	if s.isReady() {
		_ = s.peer.SendNotification(m, on) // a client that is gone needs no news
	}
}

// elicitedBy remembers what a client will be asked by way of an URL that an error
// tells it of.
func (s *Session) elicitedBy(backend string, failure []byte) {
	list, _ := protocol.URLElicitations(failure)
	n := 0
	wire.EachElement(list, func(one []byte) bool {
		id, _ := wire.Lookup(one, "elicitationId")
		s.elicited.add(backend, wire.Unquote(id))
		n++
		return n < maxRecent
	})
}
