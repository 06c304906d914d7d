package gateway

import (
	"slices"

	"mcpgateway/peer"
	"mcpgateway/wire"
)

// levels are those of log messages, the least severe first (RFC 5424).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel remembers from which level on the client wants log messages, and has
// the backends told.
func (s *Session) setLevel(r *peer.Request) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), "level")
	level := wire.Unquote(value)
	n := slices.Index(levels, level)
	if n < 0 {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: logging/setLevel needs one of the levels debug, info, notice, warning, error, critical, alert, emergency"))
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
	return s.level == 0 || slices.Index(levels, level) >= s.level
}
