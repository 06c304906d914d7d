package gateway

import (
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/peer"
	"mcpgateway/revision"
	"mcpgateway/wire"
)

// initialize answers a client's first request, from what is known at this
// moment: it waits for no backend, but has them started.
func (s *Session) initialize(r *peer.Request) {
	var hello struct {
		ProtocolVersion *string                        `json:"protocolVersion"`
		ClientInfo      struct{ Name, Version string } `json:"clientInfo"` // what else it says is nobody's business
	}
	params := r.Part(wire.PartParams)
	if err := json.Unmarshal(params, &hello); err != nil || hello.ProtocolVersion == nil {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: initialize needs protocolVersion, capabilities and clientInfo"))
		return
	}
	asked := *hello.ProtocolVersion
	caller := Caller{
		Revision: revision.Negotiate(asked),
		Name:     brief(hello.ClientInfo.Name + "/" + hello.ClientInfo.Version),
	}
	s.mu.Lock()
	s.caller = caller
	if s.state == fresh { // it may be closing already
		s.state = greeted
	}
	s.mu.Unlock()
	s.log.Info("client", "client", caller.Name, "revision", caller.Revision.Date, "asked", asked)

	s.g.Backends.Start()
	r.Reply(wire.Encode(mcp.InitializeResult{
		ProtocolVersion: caller.Revision.Date,
		ServerInfo:      s.g.Info,
		Instructions:    s.g.Backends.View().Instructions,
		Capabilities: mcp.ServerCapabilities{Tools: &struct {
			ListChanged bool `json:"listChanged,omitempty"`
		}{ListChanged: true}},
	}))
}
