package httpserver

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A handshake is the state of the initialize request of a session.
type handshake struct {
	requestID wire.ID // id of the request; "" once it has a response
	revision  string  // negotiated revision; "" = not negotiated yet
}

// begin records an initialize request, unless a revision is negotiated already.
func (h *handshake) begin(id wire.ID) {
	if h.revision == "" {
		h.requestID = id
	}
}

// noteResponse reads the negotiated revision from m, if m is the response to initialize. It reports
// whether the revision is known now.
func (h *handshake) noteResponse(m wire.Message) bool {
	if m.Kind() != wire.Response || m.ID() != h.requestID {
		return false
	}
	h.requestID = ""
	wire.Members(m.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if t, ok := protocol.FindRevision(wire.Unquote(value)); ok && key == "protocolVersion" {
			h.revision = t.Date
		}
	})
	return h.revision != ""
}

// features returns the features of the negotiated revision.
func (h *handshake) features() protocol.Features {
	t, _ := protocol.FindRevision(h.revision)
	return t
}
