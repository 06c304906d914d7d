package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/wire"
)

// HandleRequest implements peer.Handler.
func (s *Session) HandleRequest(r *peer.Request) {
	if protocol.IsModern(r.Message) {
		s.serveModern(r, s.lifecycle.current() == closing)
		return
	}
	switch queued, err := s.lifecycle.admit(r, s.rejectQueued); {
	case err != nil:
		s.fail(r, err)
	case queued:
		if q := (queuedRequest{s, r}); !r.OnCancel(q) {
			q.HandleCancel(nil)
		}
	default:
		s.dispatch(r)
	}
}

// dispatch serves a request, or rejects it if its method does not exist for the client.
func (s *Session) dispatch(r *peer.Request) {
	m := methods[r.Method()]
	var err *wire.Error
	switch params := r.Part(wire.PartParams); {
	case !wire.IsNull(params) && !wire.IsObject(params):
		err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: they must be an object")
	case m == nil, len(m.legacy) > 0 && !s.lifecycle.handshake().serverDeclares(m.legacy...):
		err = methodNotFound(r.Method())
	default:
		if err = m.checkID(r); err == nil && m.legacy == nil {
			err = methodNotFound(r.Method())
		}
	}
	switch {
	case err != nil:
		s.fail(r, err)
	case m.call != nil:
		startSessionCall(s, r, m.call)
	case m.session != nil:
		m.session(s, r)
	default:
		s.serveList(r, m.list)
	}
}

// HandleNotification implements peer.Handler. Unknown notifications are dropped without an error.
func (s *Session) HandleNotification(m wire.Message, _ peer.Origin) {
	switch m.Method() {
	case protocol.NotificationInitialized:
		s.serveQueued(s.lifecycle.initialized())
	case protocol.NotificationRootsListChanged:
		if s.isReady() && s.lifecycle.handshake().clientDeclares("roots") {
			s.g.Backends.Notify(s.id, "", m)
		}
	case protocol.NotificationTasksStatus:
		if s.isReady() {
			for _, backend := range s.clientTasks.backends(stringAt(m, "params", "taskId")) {
				s.g.Backends.Notify(s.id, backend, m)
			}
		}
	}
}

func (s *Session) isReady() bool { return s.lifecycle.current() == ready }

// A queuedRequest is a client's request that waits for notifications/initialized.
type queuedRequest struct {
	s *Session
	r *peer.Request
}

// HandleCancel implements peer.CancelHandler.
func (q queuedRequest) HandleCancel([]byte) {
	if q.s.lifecycle.withdraw(q.r) {
		q.s.recordCall(q.r.Message, Outcome{Kind: Cancelled})
	}
}

// serveQueued handles requests that have waited for notifications/initialized, when the handshake
// or the session has ended.
func (s *Session) serveQueued(q queuedRequests) {
	for _, r := range q.requests {
		s.HandleRequest(r)
	}
	for _, sr := range q.serverRequests {
		sr.send()
	}
}

// rejectQueued rejects the queued requests when initializedTimeout has expired.
func (s *Session) rejectQueued() {
	q := s.lifecycle.takeExpired()
	for _, r := range q.requests {
		s.fail(r, errNotInitialized)
	}
	for _, sr := range q.serverRequests {
		sr.send()
	}
}

// maxCapabilities bounds the capabilities of a client, in bytes, because the gateway stores them
// and sends them to backends.
const maxCapabilities = 64 << 10

// initialize responds with the capabilities in the current view. It starts the backends and does
// not wait for them.
func (s *Session) initialize(r *peer.Request) {
	var request struct {
		ProtocolVersion *string `json:"protocolVersion"`
		// other members are ignored
		ClientInfo struct{ Name, Version string } `json:"clientInfo"`
	}
	params := r.Part(wire.PartParams)
	caps, ok := capabilities(params)
	err := json.Unmarshal(params, &request)
	if err != nil || request.ProtocolVersion == nil || !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: initialize needs the string protocolVersion; capabilities (at most %d "+
				"bytes) and clientInfo must be objects if they are present", maxCapabilities))
		return
	}
	requested := *request.ProtocolVersion
	caller := &negotiated{
		Revision:   protocol.Negotiate(requested),
		Name:       truncate(request.ClientInfo.Name + "/" + request.ClientInfo.Version),
		clientCaps: caps,
	}
	s.lifecycle.negotiate(caller)
	s.log().Info("client connected", "client", caller.Name, "revision", caller.Revision.Date,
		"asked", truncate(requested))

	s.g.Backends.OpenSession(s.id, s.principal, caps, false)
	s.opened, s.openedAt = true, time.Now()
	view := s.g.Backends.StartFor(s.principal)
	offered := legacyCaps(view)
	r.Reply(wire.Encode(struct {
		ProtocolVersion string             `json:"protocolVersion"`
		Capabilities    json.RawMessage    `json:"capabilities"`
		ServerInfo      mcp.Implementation `json:"serverInfo"`
		Instructions    string             `json:"instructions,omitempty"`
	}{caller.Revision.Date, offered, s.g.Info, view.Instructions}))

	// The state changes after the response, so that no message of a backend precedes the response.
	// The client's next message is not read before this function returns.
	s.lifecycle.answered(offered)
}

// capabilities returns the client capabilities in params, {} if there are none. Null members are
// removed, because many servers reject them. The result ok is false if the capabilities are not an
// object or exceed maxCapabilities.
func capabilities(params []byte) (caps []byte, ok bool) {
	caps, _ = wire.Lookup(params, "capabilities")
	if wire.IsNull(caps) {
		return []byte("{}"), true
	}
	if !wire.IsObject(caps) || len(caps) > maxCapabilities {
		return nil, false
	}
	return bytes.Clone(wire.WithoutNulls(caps)), true
}

// setLevel stores the client's log level and sets it at the backends.
func (s *Session) setLevel(r *peer.Request) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), "level")
	level := wire.Unquote(value)
	n := protocol.LogSeverity(level)
	if n < 0 {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: logging/setLevel needs one of the levels %s",
			strings.Join(protocol.LogLevels, ", ")))
		return
	}
	if err := takeRate(&s.clientConn, r.Method(), "", ratelimit.Call); err != nil {
		s.fail(r, err)
		return
	}
	s.minLevel.Store(int32(n))
	s.g.Backends.SetLevel(s.id, level, func() { r.Reply([]byte("{}")) })
}
