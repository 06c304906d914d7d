package httpclient

import (
	"errors"
	"fmt"
	"net/http"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// eachMessage calls handle for each message in text, a batch's one by one, and for
// what is none with an error. Bytes that are not UTF-8 are replaced.
func (c *httpConn) eachMessage(text []byte, handle func(wire.Message, *transport.MalformedError)) {
	m, noise := c.parse(transport.TrimBOM(text))
	if m.Kind() != wire.Batch {
		handle(m, noise)
		return
	}
	for _, element := range m.Elements() {
		m, noise := c.parse(element)
		if m.Kind() == wire.Batch {
			noise = transport.NewMalformedError(element, wire.Message{}, wire.Errorf(wire.CodeInvalidRequest, "Invalid request: a batch in a batch"))
		}
		handle(m, noise)
	}
}

func (c *httpConn) parse(text []byte) (wire.Message, *transport.MalformedError) {
	m, err := wire.Parse(text)
	if errors.Is(err, wire.ErrUTF8) {
		c.utf8Warning.Do(func() { c.log.Warn("the server sends text that is not UTF-8; it is mended", "err", err) })
		text = wire.ReplaceInvalidUTF8(text)
		m, err = wire.Parse(text)
	}
	if err != nil {
		return m, transport.NewMalformedError(text, m, err)
	}
	return m, nil
}

// handleMessage takes one message of those that came as the response to p.
func (p *outgoingPost) handleMessage(m wire.Message, noise *transport.MalformedError) {
	switch failure := errorWithoutID(m); {
	case p.isPlainError(m), p.isUnauthorized(m): // conclude and cutOff show it
		p.plainError = m.Raw()
	case failure != nil && p.isInitialize && suggestsOtherTransport(p.status): // conclude shows it
	case failure != nil:
		p.handleAnswer(wire.NewErrorResponse(p.id, failure), false)
	case noise != nil && noise.LooksLikeResponse && noise.ID == p.id && p.id != "" && m.Salvage().Kind() == wire.Response:
		p.handleAnswer(m.Salvage(), true)
	case noise != nil:
		p.malformed = noise
		if p.isStream {
			p.c.deliver(readResult{err: noise})
		}
		if noise.LooksLikeResponse && noise.ID == p.id && p.id != "" {
			p.failUnanswered(fmt.Errorf("the answer is no message: %w", noise), true)
		}
	case m.Kind() == wire.Response && (m.ID() == p.id || p.id == ""):
		p.handleAnswer(m, m.ID() == p.id)
	default:
		p.c.deliver(readResult{m: m, about: p.id})
	}
}

// isPlainError reports whether m is an error that is not one of JSON-RPC, such as
// {"error":"invalid_token"}: it has no code. The answer to p may be such an error if the
// status is that of a success; see [wire.Message.Repair].
func (p *outgoingPost) isPlainError(m wire.Message) bool {
	failure := m.Part(wire.PartError)
	if failure == nil || m.Part(wire.PartMethod) != nil || !wire.IsNull(m.Part(wire.PartResult)) {
		return false
	}
	_, coded := wire.ErrorCode(failure)
	return !coded && (p.status >= 300 || wire.IsNull(m.Part(wire.PartID)))
}

// isUnauthorized reports whether m refuses initialize because the server wants authorization. The
// status says more than the error does.
func (p *outgoingPost) isUnauthorized(m wire.Message) bool {
	return p.status == http.StatusUnauthorized && p.m.Method() == protocol.MethodInitialize && m.Part(wire.PartError) != nil
}

// errorWithoutID returns the error of an error response that does not say what it
// answers, nil if m is anything else. Servers write such before they have looked
// into the body of the request, and do not all write the id's null.
func errorWithoutID(m wire.Message) *wire.Error {
	failure := m.Part(wire.PartError)
	_, coded := wire.ErrorCode(failure)
	if !coded || m.Part(wire.PartMethod) != nil || !wire.IsNull(m.Part(wire.PartID)) {
		return nil
	}
	return wire.ReadError(failure)
}

// handleAnswer takes the response to p. Own says that the server gave it the id of p.
func (p *outgoingPost) handleAnswer(m wire.Message, own bool) {
	failure := m.Part(wire.PartError)
	if failure != nil && p.inSession {
		if e := wire.ReadError(failure); isSessionLost(p.status, e, own) {
			p.sessionLost(fmt.Errorf("HTTP %d, %d %s", p.status, e.Code, p.target.shorten(e.Message)), !own || p.status >= 300)
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
