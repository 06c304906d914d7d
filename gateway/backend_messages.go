package gateway

import (
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// HandleRequest forwards a backend's request to the client of the session from.Session. If the
// session is uncertain, the request is rejected unless it names a task of one client. A request on
// the stream of an ended call is declined, unless it names a task, and so is a request to a client
// whose profiles do not permit the backend. HandleRequest does not block.
func (g *Gateway) HandleRequest(backend string, from contract.Attribution, r *peer.Request) {
	if from.StreamEnded && relatedTask(r.Message) == "" && taskID(r.Message) == "" {
		decline(r, errCallEnded)
		return
	}
	if client := g.statelessClients.get(from.Session); client != nil {
		if !g.reaches(client.principal, backend, from) {
			decline(r, errHiddenBackend)
			return
		}
		client.handleRequest(backend, from, r)
		return
	}
	s := g.sessions.get(from.Session)
	if s == nil && from.Session == "" {
		named := g.statelessTasks.withBackendID(backend, from, relatedTask(r.Message))
		if len(named) == 1 && !named[0].modern {
			named[0].bridge.addInputRequest(r)
			return
		}
		s = g.sessions.withTask(backend, from, r.Message)
	}
	if s != nil && !g.reaches(s.principal, backend, from) {
		decline(r, errHiddenBackend)
		return
	}
	if s == nil {
		r.Fail(wire.Errorf(wire.CodeMethodNotFound,
			"Method not found: %s: it is not certain which client the request is for",
			truncate(r.Method())))
		return
	}
	forwardRequest(s, backend, from, r)
}

// reaches reports whether a message of a backend may reach the clients of a principal.
func (g *Gateway) reaches(p *principal.Principal, backend string, from contract.Attribution) bool {
	return (from.IsFor == nil || from.IsFor(p.Key())) && g.Backends.IsPermitted(p, backend)
}

// errHiddenBackend declines a backend's request to a client that may not use the backend.
var errHiddenBackend = wire.Errorf(wire.CodeInternalError,
	"The profile of the client does not permit this backend")

// HandleNotification forwards a backend's notification to the client of the session from.Session.
// Unknown notifications, notifications that may be for another client, and those to a client whose
// profiles do not permit the backend are dropped. HandleNotification does not block.
func (g *Gateway) HandleNotification(backend string, from contract.Attribution, m wire.Message) {
	switch m.Method() {
	case protocol.NotificationTasksStatus, protocol.NotificationTasks:
		id := stringAt(m, "params", "taskId")
		for _, st := range g.statelessTasks.withBackendID(backend, from, id) {
			st.bridge.notifyChanged() // pollTask polls the task at once
		}
	}
	if client := g.statelessClients.get(from.Session); client != nil {
		if g.reaches(client.principal, backend, from) {
			client.handleNotification(backend, from, m)
		}
		return
	}
	if s := g.sessions.get(from.Session); s != nil && !g.reaches(s.principal, backend, from) {
		return
	}
	method := m.Method()
	switch method {
	case protocol.NotificationMessage:
		s := g.sessions.get(from.Session)
		if from.Session == "" {
			s = g.sessions.withTask(backend, from, m)
		}
		if s != nil && g.reaches(s.principal, backend, from) {
			s.forwardLog(backend, from, m)
		}
	case protocol.NotificationToolsListChanged, protocol.NotificationPromptsListChanged,
		protocol.NotificationResourcesListChanged:
		// a client with profiles is notified of changes of what it may see, by Run
		if s := g.sessions.get(from.Session); s != nil && s.principal.ProfileKey() == "" &&
			s.lists.noteAnnounced(method, s.view().Snapshot) {
			s.notify(wire.NewNotification(method, nil), "")
		}
	case protocol.NotificationResourceUpdated:
		if s := g.sessions.get(from.Session); s != nil &&
			s.lifecycle.handshake().serverDeclares("resources", "subscribe") {
			s.delayedUpdates.notify(&s.clientConn, backend, m,
				func(m wire.Message) { s.notify(m, "") })
		}
	case protocol.NotificationElicitationComplete:
		id := stringAt(m, "params", "elicitationId")
		if s := g.sessions.where(from.Session,
			func(s *Session) bool {
				return s.urlElicitations.has(backend, id) &&
					g.reaches(s.principal, backend, from)
			}); s != nil {
			s.delayedUpdates.notify(&s.clientConn, backend, m,
				func(m wire.Message) { s.notify(m, "") })
		}
	case protocol.NotificationTasksStatus:
		g.forwardTaskStatus(backend, from, m)
	default:
		g.Log.Debug("unknown notification dropped", "backend", backend, "method", truncate(method))
	}
}

// forwardTaskStatus forwards the status of a task to the client that knows the task, unless the
// client is backlogged: requestors "MUST NOT rely on receiving this notification" (tasks,
// 2025-11-25), and poll the task.
func (g *Gateway) forwardTaskStatus(backend string, from contract.Attribution, m wire.Message) {
	if err := protocol.CheckTask(m.Part(wire.PartParams)); err != nil {
		g.Log.Debug("ambiguous task status dropped", "backend", backend, "method", m.Method(),
			"err", err)
		return
	}
	id := stringAt(m, "params", "taskId")
	s := g.sessions.where(from.Session, func(s *Session) bool {
		_, ok := s.tasks.toClient(backend, id)
		return ok && g.reaches(s.principal, backend, from)
	})
	if s == nil {
		if s = g.sessions.get(from.Session); s != nil {
			s.calls.keepEarlyStatus(backend, from, m)
		}
		return
	}
	s.tasks.noteStatus(backend, id, stringAt(m, "params", "status"))
	if clientID, ok := s.tasks.toClient(backend, id); ok && !s.isBacklogged(backend) {
		s.notify(replaceID(m, id, clientID, "params", "taskId"), "")
	}
}

// forwardLog forwards a log message, if the client was offered logging, wants messages of this
// level and is not backlogged. The logger's name gets the backend's name as a prefix.
func (s *Session) forwardLog(backend string, from contract.Attribution, m wire.Message) {
	// A client that has not set a level gets all messages: "the server MAY decide which messages to
	// send" (logging).
	lowest := int(s.minLevel.Load())
	wanted := lowest == 0 || protocol.LogSeverity(stringAt(m, "params", "level")) >= lowest
	if !wanted || !s.lifecycle.handshake().serverDeclares("logging") || s.isBacklogged(backend) {
		return
	}
	relatedTo := s.calls.origin(backend, from, m).relatedID()
	m = withBackendLogger(backend, m)
	// before notifications/initialized, log messages are allowed: "server SHOULD NOT send requests
	// … other than pings and logging" (lifecycle)
	early := s.lifecycle.current() == awaitingInitialized
	if m = s.tasks.toClientIDs(backend, m); early {
		_ = s.peer.SendNotification(m, relatedTo)
		return
	}
	s.notify(m, relatedTo)
}

// withBackendLogger adds the backend's name as a prefix to the logger of a log message. If there is
// no logger, the backend's name becomes the logger.
func withBackendLogger(backend string, m wire.Message) wire.Message {
	switch logger, _ := wire.Lookup(m.Part(wire.PartParams), "logger"); {
	case wire.IsNull(logger):
		m, _ = m.Set(wire.Quote(backend), "params", "logger")
	case logger[0] == '"':
		m, _ = m.Set(wire.PrependString(backend+"/", logger), "params", "logger")
	}
	return m
}

// notify sends a notification to the client. RelatedTo is the id of the client's request to which
// the notification belongs; "" = none. Outside the ready state the notification is dropped.
func (s *Session) notify(m wire.Message, relatedTo wire.ID) {
	if s.isReady() {
		_ = s.peer.SendNotification(m, relatedTo)
	}
}
