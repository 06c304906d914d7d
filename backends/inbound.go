package backends

import (
	"context"
	"errors"
	"sync/atomic"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// ClientSide receives the messages that backends initiate. Its methods must not block.
type ClientSide interface {
	// HandleRequest handles a request of a backend to a client.
	HandleRequest(backend string, from contract.Attribution, r *peer.Request)
	// HandleNotification handles a notification of a backend to a client.
	HandleNotification(backend string, from contract.Attribution, m wire.Message)
}

// noClients is the ClientSide of a Set that was run without one.
type noClients struct{}

func (noClients) HandleRequest(_ string, _ contract.Attribution, r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
}

func (noClients) HandleNotification(string, contract.Attribution, wire.Message) {}

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
	h.conn.b.set.clientSide().HandleRequest(h.conn.b.cfg.Name, h.attribute(m, r.Origin()), r)
}

// HandleNotification implements peer.Handler.
func (h *inboundHandler) HandleNotification(m wire.Message, origin peer.Origin) {
	method := m.Method()
	// The lists are read over the shared connection, but if the server of a session has announced
	// a change, its client may expect the announcement. The client is notified after the refresh,
	// so that it does not read the old list.
	if h.conn.b.lists.listChanged(method, h.conn.session) {
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
		h.conn.forwardUpdate(m, attributionOf(origin))
		return
	case protocol.NotificationMessage:
		if err := protocol.CheckLogParams(m.Part(wire.PartParams)); err != nil {
			h.warnInvalidParams(m, err)
			return
		}
		h.conn.outputLog.Debug("log message of the backend",
			"params", truncate(string(m.Part(wire.PartParams)), maxLoggedMessage))
	}
	h.conn.b.set.clientSide().HandleNotification(h.conn.b.cfg.Name, h.attribute(m, origin), m)
}
