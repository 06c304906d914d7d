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

// ClientSide is whoever knows the sessions. Its methods must not wait.
type ClientSide interface {
	// HandleRequest hands on what a backend asks of a client: of that whose session is
	// named. "" means that it is not certain which one is concerned.
	HandleRequest(session, backend string, r *peer.Request)
	// HandleNotification hands on what a backend says unasked, likewise. On is the stream on which it
	// came.
	HandleNotification(session, backend string, m wire.Message, on peer.Origin)
}

// noClients are what a Set has that was run without any.
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

// maxServerRequests bounds what a backend may ask of us at one time, over one line. ClientSide
// have bounds of their own; those that have no session come back for each question, and
// it is open until then.
const maxServerRequests = 16_384

// A inboundHandler hears what a backend says unasked over one connection.
type inboundHandler struct {
	conn           *backendConn
	peer           *peer.Peer
	disconnect     context.CancelCauseFunc // ends the conversation
	lastMalformed  atomic.Pointer[string]  // how the last output began that was no message
	warnedOfParams atomic.Bool             // of params that were refused
}

// errEcho is why a conversation cannot begin with what asks what only a client does.
var errEcho = errors.New("it sends back what it is sent: it is no MCP server, or there is a terminal between (docker run -t, ssh -t)")

// HandleRequest implements peer.Handler.
func (h *inboundHandler) HandleRequest(r *peer.Request) {
	ready, server := h.conn.currentPeer()
	if m := r.Method(); ready == nil && (m == protocol.MethodInitialize || m == protocol.MethodServerDiscover) {
		h.disconnect(errEcho)
		return
	}
	if server.modern { // where servers ask nothing
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
	h.conn.b.set.clientSide().HandleRequest(h.originSession(r.Message, r.Origin()), h.conn.b.cfg.Name, r)
}

// HandleNotification implements peer.Handler.
func (h *inboundHandler) HandleNotification(m wire.Message, on peer.Origin) {
	method := m.Method()
	switch {
	case h.conn.isPerSession() && h.conn.b.requestRefresh(method, func(k catalog.Kind) { h.conn.notifyAfterRefresh[k] = true }):
		// What is listed is what the shared connection is told; but it is this client's own
		// server that says so, and the client may know what for. It is told when the list has
		// been read, so that what it reads then is not what was there before.
		return
	case !h.conn.isPerSession() && h.conn.b.listChanged(method):
		return
	}
	if _, server := h.conn.currentPeer(); server.modern {
		if method == protocol.NotificationSubscriptionsAcknowledged {
			h.conn.listenAcknowledged(m, on)
			return
		}
		m = protocol.StripMeta(m)
	}
	switch method {
	case protocol.NotificationResourceUpdated:
		h.conn.forwardUpdate(m, on)
		return
	case protocol.NotificationMessage:
		if err := protocol.CheckLogParams(m.Part(wire.PartParams)); err != nil {
			h.warnInvalidParams(m, err)
			return
		}
		h.conn.outputLog.Debug("backend says", "params", truncate(string(m.Part(wire.PartParams)), maxLoggedMessage))
	}
	h.conn.b.set.clientSide().HandleNotification(h.originSession(m, on), h.conn.b.cfg.Name, m, on)
}

// namesOrigin reports whether a message names something, a task or an elicitation,
// by which the clients' side knows whose it is: it may come when the call that was
// its cause is over.
func namesOrigin(m wire.Message) bool {
	switch m.Method() {
	case protocol.NotificationElicitationComplete, protocol.NotificationTasksStatus,
		protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksCancel:
		return true
	}
	task, _ := wire.Lookup(m.Part(wire.PartMeta), protocol.MetaRelatedTask)
	return task != nil
}

// originSession returns the session that something concerns which the backend says
// unasked, "" if that is not certain: the line's own; or that of the call on whose
// stream it came. On a shared line with one stream for everything it may also be that
// of all calls in flight, unless the message says itself whose it is. If there is only
// one client it is in any case one of its sessions, see soleSession. Where there are
// several streams (HTTP), what comes on no call's may be older than an answer that is
// here already, and is nobody's; so is what comes on that of a call that is over.
func (h *inboundHandler) originSession(m wire.Message, on peer.Origin) string {
	switch {
	case h.conn.isPerSession():
		return h.conn.session
	case on.Call != nil && (on.Call.SessionID != "" || !h.conn.b.set.SingleClient):
		return on.Call.SessionID
	case h.conn.b.set.SingleClient:
		if owner, ok := h.peer.SoleSession(); ok && !namesOrigin(m) {
			return owner
		}
		if owner := h.peer.OldestSession(); owner != "" && !namesOrigin(m) {
			return owner // there is but one client, whatever it goes by
		}
		return h.conn.b.set.soleSession()
	case on.CallEnded, h.conn.b.hasManyStreams(), namesOrigin(m):
		return ""
	}
	if _, server := h.conn.currentPeer(); server.modern { // there a log is of a call that asked for it, and has not been answered
		owner, _ := h.peer.SoleSessionWhere(func(owner string) bool {
			_, level := h.conn.b.set.requestMeta(owner)
			return level != ""
		})
		return owner
	}
	owner, _ := h.peer.SoleSession()
	return owner
}
