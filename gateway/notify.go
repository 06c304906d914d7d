package gateway

import (
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// HandleNotification hands on a notification of a backend's to the client that a session is
// with, "" if it is not certain whose it is. On is the stream on which it came.
// It does not wait. What nobody knows here is dropped, and
// so is what may be meant for another client.
func (g *Gateway) HandleNotification(session, backend string, m wire.Message, origin peer.Origin) {
	switch m.Method() {
	case protocol.NotificationTasksStatus, protocol.NotificationTasks:
		g.wakeTaskPollers(backend, m)
	}
	if client := g.statelessClients.get(session); client != nil {
		client.handleNotification(backend, m, origin)
		return
	}
	method := m.Method()
	switch method {
	case protocol.NotificationMessage:
		s := g.session(session)
		if session == "" {
			s = g.sessionForTask(backend, m)
		}
		if s != nil {
			s.forwardLog(backend, m, origin)
		}
	case protocol.NotificationToolsListChanged, protocol.NotificationPromptsListChanged, protocol.NotificationResourcesListChanged:
		if s := g.session(session); s != nil && s.noteAnnounced(method, g.Backends.View().Snapshot) {
			s.notify(wire.NewNotification(method, nil), "")
		}
	case protocol.NotificationResourceUpdated:
		if s := g.session(session); s != nil && s.serverDeclares("resources", "subscribe") {
			s.notifyUpdated(backend, m)
		}
	case protocol.NotificationElicitationComplete:
		id := stringAt(m, "params", "elicitationId")
		if s := g.sessionWhere(session, func(s *Session) bool { return s.urlElicitations.has(backend, id) }); s != nil {
			s.notify(m, "")
		}
	case protocol.NotificationTasksStatus:
		g.forwardTaskStatus(session, backend, m, origin)
	default:
		g.Log.Debug("dropped a notification", "backend", backend, "method", truncate(method))
	}
}

// sessionWhere returns the session to which something is known: the one given, or else
// the only one.
func (g *Gateway) sessionWhere(session string, knows func(*Session) bool) *Session {
	if session == "" {
		return g.soleSession(knows)
	}
	if s := g.session(session); s != nil && knows(s) {
		return s
	}
	return nil
}

func (g *Gateway) forwardTaskStatus(session, backend string, m wire.Message, origin peer.Origin) {
	if err := protocol.CheckTask(m.Part(wire.PartParams)); err != nil {
		g.Log.Debug("dropped a notification", "backend", backend, "method", m.Method(), "err", err)
		return
	}
	id := stringAt(m, "params", "taskId")
	s := g.sessionWhere(session, func(s *Session) bool {
		_, ok := s.tasks.toClient(backend, id)
		return ok
	})
	if s == nil {
		if s = g.session(session); s != nil {
			s.keepEarlyStatus(backend, m, origin)
		}
		return
	}
	s.noteTaskStatus(backend, id, stringAt(m, "params", "status"))
	if clientID, ok := s.tasks.toClient(backend, id); ok {
		s.notify(replaceID(m, id, clientID, "params", "taskId"), "")
	}
}

// forwardLog passes a log message on, if the client wants any of its level. Its logger
// is the backend, or one of its own.
func (s *Session) forwardLog(backend string, m wire.Message, origin peer.Origin) {
	if !s.serverDeclares("logging") || !s.wantsLevel(stringAt(m, "params", "level")) || s.isBacklogged(backend) {
		return
	}
	relatedTo := s.originCall(backend, m, origin).relatedID()
	m = withBackendLogger(backend, m)
	s.mu.Lock()
	early := s.state == awaitingInitialized // then "server SHOULD NOT send requests … other than pings and logging" (lifecycle)
	s.mu.Unlock()
	if m = s.toClientTaskIDs(backend, m); early {
		_ = s.peer.SendNotification(m, relatedTo)
		return
	}
	s.notify(m, relatedTo)
}

// withBackendLogger returns a log message with its backend in front of its logger.
func withBackendLogger(backend string, m wire.Message) wire.Message {
	switch logger, _ := wire.Lookup(m.Part(wire.PartParams), "logger"); {
	case wire.IsNull(logger):
		m, _ = m.Set(wire.Quote(backend), "params", "logger")
	case logger[0] == '"':
		m, _ = m.Set(prependJSONString(backend+"/", logger), "params", "logger")
	}
	return m
}

// notify sends the client a notification that belongs to a request of its, "" if
// to none. Before the handshake is over and after the client's last there is no
// one to tell.
func (s *Session) notify(m wire.Message, relatedTo wire.ID) {
	if s.isReady() {
		_ = s.peer.SendNotification(m, relatedTo) // a client that is gone needs no news
	}
}

// recordURLElicitations remembers what a client will be asked by way of an URL that an error
// tells it of.
func (s *Session) recordURLElicitations(backend string, failure []byte) {
	list, _ := protocol.URLElicitations(failure)
	n := 0
	wire.EachElement(list, func(one []byte) bool {
		id, _ := wire.Lookup(one, "elicitationId")
		s.urlElicitations.add(backend, wire.Unquote(id))
		n++
		return n < maxRecentIDs
	})
}
