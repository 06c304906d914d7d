package backends

import (
	"encoding/json"

	"mcpgateway/catalog"
	"mcpgateway/internal/wire"
)

// A serverInfo contains the declarations of a backend in the handshake.
type serverInfo struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Capabilities    json.RawMessage `json:"capabilities"`
	ServerInfo      json.RawMessage `json:"serverInfo"`
	Instructions    json.RawMessage `json:"instructions"`

	modern          bool // it is from a DiscoverResult: ProtocolVersion is the revision to use
	bothGenerations bool // a DiscoverResult that includes legacy revisions
}

// displayName returns the server's name/version; a part that the server omits is empty. If the
// server omits both, the result is "".
func (s serverInfo) displayName() string {
	var info struct{ Name, Version json.RawMessage }
	_ = json.Unmarshal(s.ServerInfo, &info)
	if info.Name == nil && info.Version == nil {
		return ""
	}
	return wire.Unquote(info.Name) + "/" + wire.Unquote(info.Version)
}

// capabilitiesOf returns the capabilities that a server has declared. Some servers send null or
// [] for none.
func capabilitiesOf(capabilities []byte) json.RawMessage {
	if !wire.IsObject(capabilities) {
		return emptyObject
	}
	return capabilities
}

func (s serverInfo) instructions() string { return wire.Unquote(s.Instructions) }

// has reports whether the server has declared a capability.
func (s serverInfo) has(capability ...string) bool {
	return catalog.Declares(s.Capabilities, capability...)
}

// lists reports whether the gateway requests a list from the server. Tools are always requested,
// because they are the main purpose of servers.
func (s serverInfo) lists(k catalog.Kind) bool {
	return k == catalog.Tools || s.has(k.Capability())
}
