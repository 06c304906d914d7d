package httpclient

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/sse"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A messageReader reads the messages of a Conn.
type messageReader struct {
	limit       int                     // bytes of one message
	quota       *transport.ReceiveQuota // bounds incomplete messages; nil = no bound
	log         *slog.Logger
	utf8Warning sync.Once
}

// events returns a reader of a stream of events.
func (r *messageReader) events() *sse.Reader { return sse.NewReader(r.limit, r.quota) }

// eachMessage calls the function handle with the message in text, or with each element of a batch.
// For input that is not a message, it calls handle with an error. Invalid UTF-8 is replaced.
func (r *messageReader) eachMessage(
	text []byte, handle func(wire.Message, *transport.MalformedError),
) {
	m, malformed := r.parse(transport.TrimBOM(text))
	if m.Kind() != wire.Batch {
		handle(m, malformed)
		return
	}
	for _, element := range m.Elements() {
		m, malformed := r.parse(bytes.Clone(element)) // it may be stored longer than the others
		if m.Kind() == wire.Batch {
			malformed = transport.NewMalformedError(element, wire.Message{},
				wire.Errorf(wire.CodeInvalidRequest, "Invalid request: a batch in a batch"))
		}
		handle(m, malformed)
	}
}

// parse parses one message, after replacing invalid UTF-8.
func (r *messageReader) parse(text []byte) (wire.Message, *transport.MalformedError) {
	m, err := wire.Parse(text)
	if errors.Is(err, wire.ErrUTF8) {
		r.utf8Warning.Do(func() { r.log.Warn("replacing invalid UTF-8 of the server", "err", err) })
		text = wire.ReplaceInvalidUTF8(text)
		m, err = wire.Parse(text)
	}
	if err != nil {
		return m, transport.NewMalformedError(text, m, err)
	}
	return m, nil
}

// handleMessage processes one message of the HTTP response to p.
func (p *outgoingPost) handleMessage(m wire.Message, malformed *transport.MalformedError) {
	switch failure := errorWithoutID(m); {
	case p.isPlainError(m), p.isUnauthorized(m): // reported after the whole response
		p.response.plainError = m.Raw()
	case failure != nil && p.isInitialize && suggestsOtherTransport(p.response.status):
		// reported by finishUnanswered
	case failure != nil:
		p.handleRPCResponse(wire.NewErrorResponse(p.id, failure), false)
	case malformed != nil && malformed.LooksLikeResponse && malformed.ID == p.id && p.id != "" &&
		m.Salvage().Kind() == wire.Response:
		p.handleRPCResponse(m.Salvage(), true)
	case malformed != nil:
		p.response.malformed = malformed
		if p.response.isStream {
			p.c.deliver(readResult{err: malformed})
		}
		if malformed.LooksLikeResponse && malformed.ID == p.id && p.id != "" {
			p.failUnanswered(fmt.Errorf("the answer is not a message: %w", malformed), true)
		}
	case m.Kind() == wire.Response && (m.ID() == p.id || p.id == ""):
		p.handleRPCResponse(m, m.ID() == p.id)
	default:
		p.c.deliver(readResult{m: m, relatedTo: p.id})
	}
}

// isPlainError reports whether m is an error that is not a JSON-RPC error, such as
// {"error":"invalid_token"}: it has no code. If the HTTP status reports success and m has an id, m
// is the response to p; see [wire.Message.Repair].
func (p *outgoingPost) isPlainError(m wire.Message) bool {
	failure := m.Part(wire.PartError)
	if failure == nil || m.Part(wire.PartMethod) != nil || !wire.IsNull(m.Part(wire.PartResult)) {
		return false
	}
	_, coded := wire.ErrorCode(failure)
	return !coded && (p.response.status >= 300 || wire.IsNull(m.Part(wire.PartID)))
}

// isUnauthorized reports whether m rejects initialize because the server requires authorization. In
// this case the HTTP status is more informative than the error.
func (p *outgoingPost) isUnauthorized(m wire.Message) bool {
	return p.response.status == http.StatusUnauthorized &&
		p.m.Method() == protocol.MethodInitialize && m.Part(wire.PartError) != nil
}

// errorWithoutID returns the error in an error response without an id; nil = m is not such a
// response. Servers send such responses before they have parsed the request, and some servers omit
// the null id.
func errorWithoutID(m wire.Message) *wire.Error {
	failure := m.Part(wire.PartError)
	_, coded := wire.ErrorCode(failure)
	if !coded || m.Part(wire.PartMethod) != nil || !wire.IsNull(m.Part(wire.PartID)) {
		return nil
	}
	return wire.ReadError(failure)
}

// handleRPCResponse processes the response to p. hasID is true if the response has the id of p.
func (p *outgoingPost) handleRPCResponse(m wire.Message, hasID bool) {
	failure := m.Part(wire.PartError)
	if failure != nil && p.inSession {
		status := p.response.status
		if e := wire.ReadError(failure); isSessionLost(status, e, hasID) {
			err := fmt.Errorf("HTTP %d, %d %s", status, e.Code, p.target.shorten(e.Message))
			p.sessionLost(err, !hasID || status >= 300)
			return
		}
	}
	switch {
	case p.id == "" && failure != nil:
		p.failUnanswered(wire.ReadError(failure), false)
		return
	case failure == nil:
		p.c.flavour.onResult(p, m)
	}
	if p.claim() {
		p.c.deliver(readResult{m: m})
	}
}
