package gateway

import (
	"strings"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

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
	s.level = n
	s.mu.Unlock()
	s.g.Backends.SetLevel(s.id, level, func() { r.Reply([]byte("{}")) })
}

// wants reports whether the client wants log messages of a level. To one that
// has set none, all go: "the server MAY decide which messages to send" (logging).
func (s *Session) wants(level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level == 0 || protocol.LogSeverity(level) >= s.level
}
