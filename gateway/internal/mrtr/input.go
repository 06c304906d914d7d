package mrtr

import (
	"strconv"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Key returns the key of a call's nth input request.
func Key(n int) string { return "q" + strconv.Itoa(n) }

// IsKey reports whether a key has the form of those that Key returns.
func IsKey(key string) bool {
	n, ok := strings.CutPrefix(key, "q")
	_, err := strconv.Atoi(n)
	return ok && err == nil
}

// IsValidResponse reports whether a client's response has the shape that the method
// requires.
func IsValidResponse(method string, answer []byte) bool {
	if !wire.IsObject(answer) {
		return false
	}
	has := func(member string, first byte) bool {
		value, _ := wire.Lookup(answer, member)
		return len(value) > 0 && (first == 0 || value[0] == first)
	}
	switch method {
	case protocol.MethodElicitationCreate:
		return has("action", '"')
	case protocol.MethodRootsList:
		return has("roots", '[')
	case protocol.MethodSamplingCreateMessage:
		return has("content", 0) && has("role", '"')
	}
	return true
}

// toInputRequest converts a backend's request to an input request for a modern client.
func toInputRequest(key, backend string, m wire.Message) protocol.InputRequest {
	m = WithLabel(backend, m)
	params := m.Part(wire.PartParams)
	if wire.IsObject(params) {
		meta := wire.EditObject(m.Part(wire.PartMeta),
			func(key string) bool {
				return key == "progressToken" ||
					key == protocol.MetaRelatedTask
			})
		members := []wire.Member{{Key: "_meta", Text: meta}}
		if string(meta) == "{}" {
			members = nil
		}
		params = wire.EditObject(params, func(key string) bool {
			return key == "task" || key == "elicitationId" || key == "_meta"
		}, members...)
	} else {
		params = nil
	}
	return protocol.InputRequest{Key: key, Method: m.Method(), Params: params}
}
