package mrtr

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// WithLabel prefixes the message of an elicitation with the backend's name.
func WithLabel(backend string, m wire.Message) wire.Message {
	if m.Method() != protocol.MethodElicitationCreate {
		return m
	}
	if text, _ := wire.Lookup(m.Raw(), "params", "message"); len(text) > 0 && text[0] == '"' {
		m, _ = m.Set(wire.PrependString(Label(backend), text), "params", "message")
	}
	return m
}

// Label returns the prefix of a backend's elicitation messages.
func Label(backend string) string { return "[" + backend + "] " }

// LabelInputs adds the backend's label to the elicitations in a result's inputRequests.
func LabelInputs(backend string, m wire.Message) wire.Message {
	requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
	wire.Members(requests, func(key string, one []byte, _ int) {
		method, _ := wire.Lookup(one, "method")
		text, _ := wire.Lookup(one, "params", "message")
		if wire.Unquote(method) == protocol.MethodElicitationCreate && len(text) > 0 &&
			text[0] == '"' {
			m, _ = m.Set(wire.PrependString(Label(backend), text), "result", "inputRequests",
				key, "params", "message")
		}
	})
	return m
}
