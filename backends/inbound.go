package backends

import (
	"context"
	"errors"
	"sync/atomic"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// ClientSide receives the messages that backends initiate. Its methods must not block.
type ClientSide interface {
	// HandleRequest handles a request of a backend to the client of a session; "" = the session
	// is unknown.
	HandleRequest(session, backend string, r *peer.Request)
	// HandleNotification handles a notification of a backend to the client of a session; "" =
	// the session is unknown. origin is the call or stream on which the message arrived.
	HandleNotification(session, backend string, m wire.Message, origin peer.Origin)
}

// noClients is the ClientSide of a Set that was run without one.
type noClients struct{}

func (noClients) HandleRequest(_, _ string, r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
}

func (noClients) HandleNotification(_, _ string, _ wire.Message, _ peer.Origin) {}

func (s *Set) clientSide() ClientSide {
	if s.clients == nil {
		return noClients{}
	}
	return s.clients
}

// maxBackendRequests bounds the open requests of a backend over one connection. The requests to one
// client are also bounded (gateway.maxServerRequests). A request to a modern client stays open
// until the client continues the call.
const maxBackendRequests = 16_384

// An inboundHandler handles the messages that a backend initiates over one connection.
type inboundHandler struct {
	conn           *backendConn
	peer           *peer.Peer
	disconnect     context.CancelCauseFunc // ends the connection
	lastMalformed  atomic.Pointer[string]  // beginning of the last malformed output
	warnedOfParams atomic.Bool             // invalid params were logged as a warning
}

// errEcho is the reason for ending a connection whose remote side sends the gateway's requests
// back.
var errEcho = errors.New(
	"it echoes its input: it is not an MCP server, or there is a terminal in between (docker run -t, ssh -t)")

// HandleRequest implements peer.Handler.
func (h *inboundHandler) HandleRequest(r *peer.Request) {
	ready, server := h.conn.currentPeer()
	if m := r.Method(); ready == nil && (m == protocol.MethodInitialize ||
		m == protocol.MethodServerDiscover) {
		h.disconnect(errEcho)
		return
	}
	if server.modern { // modern servers send no requests
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
		return
	}
	m, err := protocol.NormalizeServerRequest(r.Message)
	if err == nil && r.Method() == protocol.MethodElicitationCreate {
		err = protocol.CheckElicitationParams(m.Part(wire.PartParams))
	}
	if err != nil {
		h.warnInvalidParams(m, err)
		r.Fail(wire.Errorf(wire.CodeInvalidParams, "Invalid params: %v", err))
		return
	}
	r.Message = m
	h.conn.b.set.clientSide().HandleRequest(h.originSession(r.Message, r.Origin()),
		h.conn.b.cfg.Name, r)
}

// HandleNotification implements peer.Handler.
func (h *inboundHandler) HandleNotification(m wire.Message, origin peer.Origin) {
	method := m.Method()
	switch {
	case h.conn.isPerSession() && h.conn.b.requestRefresh(method,
		func(k catalog.Kind) { h.conn.notifyAfterRefresh[k] = true }):
		// The lists are read over the shared connection, but the server of this session has
		// announced a change, and the client may expect the announcement. The client is notified
		// after the refresh, so that it does not read the old list.
		return
	case !h.conn.isPerSession() && h.conn.b.listChanged(method):
		return
	}
	if _, server := h.conn.currentPeer(); server.modern {
		if method == protocol.NotificationSubscriptionsAcknowledged {
			h.conn.listenAcknowledged(m, origin)
			return
		}
		m = protocol.StripMeta(m)
	}
	switch method {
	case protocol.NotificationResourceUpdated:
		h.conn.forwardUpdate(m, origin)
		return
	case protocol.NotificationMessage:
		if err := protocol.CheckLogParams(m.Part(wire.PartParams)); err != nil {
			h.warnInvalidParams(m, err)
			return
		}
		h.conn.outputLog.Debug("log message of the backend",
			"params", truncate(string(m.Part(wire.PartParams)), maxLoggedMessage))
	}
	h.conn.b.set.clientSide().HandleNotification(h.originSession(m, origin), h.conn.b.cfg.Name, m,
		origin)
}

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

// originSession returns the session that a message of the backend belongs to, or "" if it is
// unknown:
//
//  1. a per-session connection: its session;
//  2. the call on whose stream the message arrived: its session;
//  3. a single client: the session of its calls in flight, that of the oldest call if they belong
//     to several; the session that soleSession returns if there are none, or if the message names a
//     task or elicitation;
//  4. on stdio: the only session with calls in flight (see peer.Peer.SoleSession), unless the
//     message names a task or elicitation. For a modern server only sessions with a log level
//     count.
//
// If neither rule 1 nor rule 3 applies, the session is unknown in two cases: over HTTP, for a
// message outside of the calls' streams, because the message may be older than a response that was
// already received; and for a message on the stream of an ended call.
func (h *inboundHandler) originSession(m wire.Message, origin peer.Origin) string {
	switch {
	case h.conn.isPerSession():
		return h.conn.session
	case origin.Call != nil && (origin.Call.SessionID != "" || !h.conn.b.set.SingleClient):
		return origin.Call.SessionID
	case h.conn.b.set.SingleClient:
		if session, ok := h.peer.SoleSession(); ok && !namesOrigin(m) {
			return session
		}
		if session := h.peer.OldestSession(); session != "" && !namesOrigin(m) {
			return session // all sessions belong to the only client
		}
		return h.conn.b.set.soleSession()
	case origin.CallEnded, h.conn.b.hasManyStreams(), namesOrigin(m):
		return ""
	}
	// a modern server sends log messages only for calls with a log level
	if _, server := h.conn.currentPeer(); server.modern {
		session, _ := h.peer.SoleSessionWhere(func(session string) bool {
			_, level := h.conn.b.set.requestMeta(session)
			return level != ""
		})
		return session
	}
	session, _ := h.peer.SoleSession()
	return session
}
