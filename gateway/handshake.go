package gateway

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A Caller is who a session is with, and what the two may ask of each other:
// plain facts, gathered at the handshake. The zero Caller may be asked nothing.
type Caller struct {
	Revision protocol.Features
	Name     string // name/version

	can     []byte // the client's capabilities, as it declared them
	offered []byte // ours, as it was told
	tasks   bool   // among them
}

// maxCapabilities bounds what a client may declare, in bytes: it is kept, and told
// to backends.
const maxCapabilities = 64 << 10

// initialize answers a client's first request, from what is known at this
// moment: it waits for no backend, but has them started.
func (s *Session) initialize(r *peer.Request) {
	var hello struct {
		ProtocolVersion *string                        `json:"protocolVersion"`
		ClientInfo      struct{ Name, Version string } `json:"clientInfo"` // what else it says is nobody's business
	}
	params := r.Part(wire.PartParams)
	can, ok := capabilities(params)
	if err := json.Unmarshal(params, &hello); err != nil || hello.ProtocolVersion == nil || !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: initialize needs protocolVersion, capabilities and clientInfo"))
		return
	}
	asked := *hello.ProtocolVersion
	caller := Caller{
		Revision: protocol.Negotiate(asked),
		Name:     brief(hello.ClientInfo.Name + "/" + hello.ClientInfo.Version),
		can:      can,
	}
	s.mu.Lock()
	s.caller = caller // backends that are there already may ask for it at once
	s.mu.Unlock()
	who := []any{"client", caller.Name, "revision", caller.Revision.Date, "asked", brief(asked)}
	if s.principal != "" {
		who = append(who, "principal", s.principal)
	}
	s.log().Info("client", who...)

	s.g.Backends.OpenSession(s.id, can, false)
	s.opened, s.since = true, time.Now()
	view := s.g.Backends.Start()
	offered := classicOffer(view)
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
	s.caller.offered, s.caller.tasks = offered, catalog.Declares(offered, "tasks")
	if s.state == fresh { // it may be closing already
		s.state = greeted
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

// can reports whether the client has declared a capability.
func (s *Session) can(path ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return catalog.Declares(s.caller.can, path...)
}

func (s *Session) offersTasks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller.tasks
}

// offers reports whether the client was told that the gateway has a capability.
func (s *Session) offers(path ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return catalog.Declares(s.caller.offered, path...)
}
