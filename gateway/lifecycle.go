package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A sessionState is the lifecycle state of a session (MCP lifecycle, revisions up to 2025-11-25):
//
//	uninitialized ─ initialize answered → awaitingInitialized
//	   ─ notifications/initialized → ready → closing
type sessionState uint8

const (
	uninitialized       sessionState = iota // only initialize and ping are allowed
	awaitingInitialized                     // initialize was answered
	ready
	closing // the client has disconnected, or the gateway is shutting down
)

// An admission is the decision about a request.
type admission uint8

const (
	serve               admission = iota
	queue                         // until notifications/initialized, for a limited time
	rejectUninitialized           // -32002: not initialized
	rejectDuplicate               // -32600: a second initialize
	rejectUnknown                 // -32601, in every state
	rejectClosing                 // -32603: the session is closing
)

// admit is the lifecycle table: a pure function of the state and the method. It gets no legacy
// pings, because package peer responds to these in every state.
func admit(s sessionState, method string) admission {
	switch {
	case method == protocol.MethodServerDiscover:
		// A client of a later revision sends server/discover first, to detect a legacy server. The
		// response must not depend on the handshake.
		return rejectUnknown
	case s == closing:
		return rejectClosing
	case method == protocol.MethodInitialize && s == uninitialized:
		return serve
	case method == protocol.MethodInitialize:
		return rejectDuplicate
	case s == uninitialized:
		return rejectUninitialized
	case s == awaitingInitialized:
		return queue
	}
	return serve
}

// checkID rejects the id null for a request that reaches a backend or stays open: MCP forbids this
// id, and two such requests cannot be distinguished. Any other request with the id null gets a
// response with this id.
func checkID(m wire.Message) *wire.Error {
	if m.ID() != "null" {
		return nil
	}
	switch method := m.Method(); method {
	case protocol.MethodToolsCall, protocol.MethodPromptsGet, protocol.MethodResourcesRead,
		protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe,
		protocol.MethodCompletionComplete,
		protocol.MethodSetLogLevel, protocol.MethodTasksGet, protocol.MethodTasksResult,
		protocol.MethodTasksList,
		protocol.MethodTasksCancel, protocol.MethodTasksUpdate, protocol.MethodSubscriptionsListen:
		return wire.Errorf(wire.CodeInvalidRequest,
			"Invalid request: %s did not run because its id is null: "+
				"send it with a string or a number as its id", method)
	}
	return nil
}

// negotiated is the result of the handshake. The zero value allows no requests to the client.
type negotiated struct {
	Revision protocol.Features
	Name     string // name/version

	clientCaps  []byte // as declared by the client, JSON
	serverCaps  []byte // as sent to the client, JSON
	offersTasks bool   // serverCaps include tasks
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
	caller := negotiated{
		Revision:   protocol.Negotiate(requested),
		Name:       truncate(request.ClientInfo.Name + "/" + request.ClientInfo.Version),
		clientCaps: caps,
	}
	s.mu.Lock()
	s.negotiated = caller // a running backend may send the client a request at once
	s.mu.Unlock()
	attrs := []any{"client", caller.Name, "revision", caller.Revision.Date,
		"asked", truncate(requested)}
	if s.principal != "" {
		attrs = append(attrs, "principal", s.principal)
	}
	s.log().Info("client connected", attrs...)

	s.g.Backends.OpenSession(s.id, caps, false)
	s.opened, s.openedAt = true, time.Now()
	view := s.g.Backends.Start()
	offered := legacyCaps(view)
	r.Reply(wire.Encode(struct {
		ProtocolVersion string             `json:"protocolVersion"`
		Capabilities    json.RawMessage    `json:"capabilities"`
		ServerInfo      mcp.Implementation `json:"serverInfo"`
		Instructions    string             `json:"instructions,omitempty"`
	}{caller.Revision.Date, offered, s.g.Info, view.Instructions}))

	// The state changes after the response, so that no message of a backend precedes the response.
	// The client's next message is not read before this function returns.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.negotiated.serverCaps, s.negotiated.offersTasks = offered, catalog.Declares(offered, "tasks")
	if s.state == uninitialized { // it may already be closing
		s.state = awaitingInitialized
	}
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

// clientDeclares reports whether the client has declared a capability.
func (s *Session) clientDeclares(path ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return catalog.Declares(s.negotiated.clientCaps, path...)
}

func (s *Session) offersTasks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.negotiated.offersTasks
}

// serverDeclares reports whether the client was sent a server capability.
func (s *Session) serverDeclares(path ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return catalog.Declares(s.negotiated.serverCaps, path...)
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
	s.mu.Lock()
	s.minLevel = n
	s.mu.Unlock()
	s.g.Backends.SetLevel(s.id, level, func() { r.Reply([]byte("{}")) })
}

// wantsLevel reports whether the client wants log messages of a level. A client that has not set a
// level gets all messages: "the server MAY decide which messages to send" (logging).
func (s *Session) wantsLevel(level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minLevel == 0 || protocol.LogSeverity(level) >= s.minLevel
}
