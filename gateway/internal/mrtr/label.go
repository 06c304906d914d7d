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

// LabelInputs adds the backend's label to the elicitations in a result's inputRequests. All other
// bytes stay.
func LabelInputs(backend string, m wire.Message) wire.Message {
	requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
	front := wire.Quote(Label(backend))
	front = front[:len(front)-1]
	var labelled []byte
	done := 0 // end of the text in labelled
	wire.Members(requests, func(_ string, one []byte, at int) {
		method, _ := wire.Lookup(one, "method")
		text, inOne := wire.Lookup(one, "params", "message")
		if wire.Unquote(method) == protocol.MethodElicitationCreate && len(text) > 0 &&
			text[0] == '"' {
			labelled = append(append(labelled, requests[done:at+inOne]...), front...)
			done = at + inOne + len(`"`)
		}
	})
	if done > 0 {
		m, _ = m.Set(append(labelled, requests[done:]...), "result", "inputRequests")
	}
	return m
}
