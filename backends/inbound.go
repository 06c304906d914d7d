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

// maxBackendRequests bounds the open requests of a backend over one connection. The requests to one
// client are also bounded (gateway.maxServerRequests). A request to a modern client stays open
// until the client continues the call.
const maxBackendRequests = 16_384

// An inboundHandler handles the messages that a backend initiates over one connection.
type inboundHandler struct {
	link           *link
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
	if m := r.Method(); h.link.conn.current() == nil && (m == protocol.MethodInitialize ||
		m == protocol.MethodServerDiscover) {
		h.disconnect(errEcho)
		return
	}
	if h.link.isModern() { // modern servers send no requests
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
	b := h.link.conn.b
	b.set.clients.HandleRequest(b.cfg.Name, h.attribute(m, r.Origin()), r)
}

// HandleNotification implements peer.Handler.
func (h *inboundHandler) HandleNotification(m wire.Message, origin peer.Origin) {
	method := m.Method()
	// The lists are read over the shared connection, but if the server of a session has announced
	// a change, its client may expect the announcement. The client is notified after the refresh,
	// so that it does not read the old list.
	bc := h.link.conn
	if bc.b.lists.listChanged(method, bc.session) {
		return
	}
	if h.link.isModern() {
		if method == protocol.NotificationSubscriptionsAcknowledged {
			bc.listenAcknowledged(m, origin)
			return
		}
		m = protocol.StripMeta(m)
	}
	switch method {
	case protocol.NotificationResourceUpdated:
		bc.forwardUpdate(m, attributionOf(bc.b, origin))
		return
	case protocol.NotificationMessage:
		if err := protocol.CheckLogParams(m.Part(wire.PartParams)); err != nil {
			h.warnInvalidParams(m, err)
			return
		}
		bc.outputLog.Debug("log message of the backend",
			"params", truncate(string(m.Part(wire.PartParams)), maxLoggedMessage))
	}
	bc.b.set.clients.HandleNotification(bc.b.cfg.Name, h.attribute(m, origin), m)
}
