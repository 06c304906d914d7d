package backends

import (
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// namesOrigin reports whether a message names a task or an elicitation. The gateway finds the
// session of such a message by the task or elicitation, because the message may arrive after the
// end of the call that caused it.
func namesOrigin(m wire.Message) bool {
	switch m.Method() {
	case protocol.NotificationElicitationComplete, protocol.NotificationTasksStatus,
		protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksCancel:
		return true
	}
	task, _ := wire.Lookup(m.Part(wire.PartMeta), protocol.MetaRelatedTask)
	return task != nil
}

// attributionOf returns the attribution of a message by its stream alone, without the session.
func attributionOf(b *Backend, origin peer.Origin) contract.Attribution {
	from := contract.Attribution{StreamEnded: origin.CallEnded}
	if b.instances.enabled() {
		from.IsFor = b.instances.serves
	}
	if origin.Call != nil {
		from.Handler = ignoreOutcome{} // a call of this package
		if q, ok := origin.Call.Handler.(*queuedCall); ok {
			from.Handler = q.handler
		}
	}
	return from
}

// attribute returns what a message of the backend belongs to. This is the session:
//
//  1. a per-session connection: its session;
//  2. the call on whose stream the message arrived: its session;
//  3. a single client: the session of its calls in flight, that of the oldest call if they belong
//     to several; the session that clientSessions.sole returns if there are none, or if the message
//     names a task or elicitation;
//  4. on stdio: the only session with calls in flight (see peer.Peer.SoleSession), unless the
//     message names a task or elicitation. For a modern server only sessions with a log level
//     count.
//
// If neither rule 1 nor rule 3 applies, the session is unknown in two cases: over HTTP, for a
// message outside of the calls' streams, because the message may be older than a response that was
// already received; and for a message on the stream of an ended call.
func (h *inboundHandler) attribute(m wire.Message, origin peer.Origin) contract.Attribution {
	from := attributionOf(h.link.conn.b, origin)
	from.Session = h.sessionOf(m, origin)
	return from
}

func (h *inboundHandler) sessionOf(m wire.Message, origin peer.Origin) string {
	bc, p := h.link.conn, h.link.peer
	switch {
	case bc.isPerSession():
		return bc.session
	case origin.Call != nil && (origin.Call.SessionID != "" || !bc.b.set.SingleClient):
		return origin.Call.SessionID
	case bc.b.set.SingleClient:
		if session, ok := p.SoleSession(); ok && !namesOrigin(m) {
			return session
		}
		if session := p.OldestSession(); session != "" && !namesOrigin(m) {
			return session // all sessions belong to the only client
		}
		return bc.b.set.sessions.sole()
	case origin.CallEnded, bc.b.hasManyStreams(), namesOrigin(m):
		return ""
	}
	// a modern server sends log messages only for calls with a log level
	if h.link.isModern() {
		session, _ := p.SoleSessionWhere(func(session string) bool {
			_, level := bc.b.set.sessions.requestMeta(session)
			return level != ""
		})
		return session
	}
	session, _ := p.SoleSession()
	return session
}
