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

// A state is where a session stands (MCP lifecycle, revisions up to 2025-11-25):
//
//	fresh ─ initialize answered → greeted ─ notifications/initialized → ready → closing
type state uint8

const (
	uninitialized       state = iota // nothing but initialize and ping
	awaitingInitialized              // initialize was answered; initialized has not come yet
	ready
	closing // the client has sent its last, or we are ending
)

// A admission says what is done with a request.
type admission uint8

const (
	serve               admission = iota
	queue                         // until initialized comes, for a while
	rejectUninitialized           // -32002: not initialized
	rejectDuplicate               // -32600: a second initialize
	rejectUnknown                 // -32601, whatever the state
	rejectClosing                 // -32603: the gateway is ending
)

// admit is the lifecycle: a pure function of the state and the method. Ping is
// not asked about; package peer answers it in every state, unless it is of the stateless era.
func admit(s state, method string) admission {
	switch {
	case method == protocol.MethodServerDiscover:
		// A client of a later revision asks this first, to learn whether it has
		// to do with one of today's servers. That is answered at once.
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

// checkID refuses the id null for a request that reaches a backend or that stays open: MCP forbids
// this id, and two such requests cannot be told apart. A request that the gateway answers itself
// is answered with the id null.
func checkID(m wire.Message) *wire.Error {
	if m.ID() != "null" {
		return nil
	}
	switch method := m.Method(); method {
	case protocol.MethodToolsCall, protocol.MethodPromptsGet, protocol.MethodResourcesRead,
		protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe, protocol.MethodCompletionComplete,
		protocol.MethodSetLogLevel, protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksList,
		protocol.MethodTasksCancel, protocol.MethodTasksUpdate, protocol.MethodSubscriptionsListen:
		return wire.Errorf(wire.CodeInvalidRequest, "Invalid request: %s did not run because its id is null: "+
			"send it with a string or a number as its id", method)
	}
	return nil
}

// A negotiated is who a session is with, and what the two may ask of each other:
// plain facts, gathered at the handshake. The zero negotiated may be asked nothing.
type negotiated struct {
	Revision protocol.Features
	Name     string // name/version

	clientCaps  []byte // the client's capabilities, as it declared them
	serverCaps  []byte // ours, as it was told
	offersTasks bool   // among them
}

// maxCapabilities bounds what a client may declare, in bytes: it is kept, and told
// to backends.
const maxCapabilities = 64 << 10

// initialize answers a client's first request, from what is known at this
// moment: it waits for no backend, but has them started.
func (s *Session) initialize(r *peer.Request) {
	var request struct {
		ProtocolVersion *string                        `json:"protocolVersion"`
		ClientInfo      struct{ Name, Version string } `json:"clientInfo"` // what else it says is nobody's business
	}
	params := r.Part(wire.PartParams)
	can, ok := capabilities(params)
	if err := json.Unmarshal(params, &request); err != nil || request.ProtocolVersion == nil || !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: initialize needs protocolVersion, capabilities and clientInfo"))
		return
	}
	asked := *request.ProtocolVersion
	caller := negotiated{
		Revision:   protocol.Negotiate(asked),
		Name:       truncate(request.ClientInfo.Name + "/" + request.ClientInfo.Version),
		clientCaps: can,
	}
	s.mu.Lock()
	s.negotiated = caller // backends that are there already may ask for it at once
	s.mu.Unlock()
	who := []any{"client", caller.Name, "revision", caller.Revision.Date, "asked", truncate(asked)}
	if s.principal != "" {
		who = append(who, "principal", s.principal)
	}
	s.log().Info("client", who...)

	s.g.Backends.OpenSession(s.id, can, false)
	s.opened, s.openedAt = true, time.Now()
	view := s.g.Backends.Start()
	offered := legacyCaps(view)
	r.Reply(wire.Encode(struct {
		ProtocolVersion string             `json:"protocolVersion"`
		Capabilities    json.RawMessage    `json:"capabilities"`
		ServerInfo      mcp.Implementation `json:"serverInfo"`
		Instructions    string             `json:"instructions,omitempty"`
	}{caller.Revision.Date, offered, s.g.Info, view.Instructions}))

	// Not before, so that nothing of a backend's comes ahead of the answer; the
	// client's next message is not read before this one is done with.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.negotiated.serverCaps, s.negotiated.offersTasks = offered, catalog.Declares(offered, "tasks")
	if s.state == uninitialized { // it may be closing already
		s.state = awaitingInitialized
	}
}

// capabilities returns those that a client declares, without members that are null, for many servers
// refuse these; {} if the client declares none.
func capabilities(params []byte) (can []byte, ok bool) {
	can, _ = wire.Lookup(params, "capabilities")
	if wire.IsNull(can) {
		return []byte("{}"), true
	}
	if !wire.IsObject(can) || len(can) > maxCapabilities {
		return nil, false
	}
	return bytes.Clone(wire.WithoutNulls(can)), true
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

// serverDeclares reports whether the client was told that the gateway has a capability.
func (s *Session) serverDeclares(path ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return catalog.Declares(s.negotiated.serverCaps, path...)
}

// setLevel remembers from which level on the client wants log messages, and has
// the backends told.
func (s *Session) setLevel(r *peer.Request) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), "level")
	level := wire.Unquote(value)
	n := protocol.LogSeverity(level)
	if n < 0 {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: logging/setLevel needs one of the levels %s", strings.Join(protocol.LogLevels, ", ")))
		return
	}
	s.mu.Lock()
	s.minLevel = n
	s.mu.Unlock()
	s.g.Backends.SetLevel(s.id, level, func() { r.Reply([]byte("{}")) })
}

// wantsLevel reports whether the client wants log messages of a level. To one that
// has set none, all go: "the server MAY decide which messages to send" (logging).
func (s *Session) wantsLevel(level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minLevel == 0 || protocol.LogSeverity(level) >= s.minLevel
}
