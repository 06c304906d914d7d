package httpclient

import (
	"errors"
	"net/http"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// ErrNotStateless is wrapped by the CallLostError of a request server/discover if the server
// responded like a server that knows only revisions with sessions: with 400, 404 or 405 and no
// JSON-RPC response to that request ("Backward Compatibility"), or with the endpoint event of
// HTTP+SSE. The caller can then try [DialStreamable]. Other statuses do not depend on the
// revisions.
var ErrNotStateless = errors.New("this may be no server of a revision without sessions")

// errResponseNotAllowed is the error of Write for a response.
var errResponseNotAllowed = errors.New(
	"a response cannot be sent: in this revision the server sends no requests")

// DialStateless returns the Conn to a server of streamable HTTP as defined by the revisions without
// sessions, that is, 2026-07-28 and later. It only checks the URL and reads the files of o.TLS. If
// the server cannot be reached, each request fails with a [*transport.CallLostError].
//
// Each request and notification is a POST of its own, with the headers of [Options].RequestHeaders.
// There is no session, no GET and no DELETE, and a response cannot be written. Read returns the
// messages on the stream of a request with the id of the request as relatedTo, except the response
// itself. The duration of a stream is not limited, and the server may send the HTTP headers as late
// as the response. A subscriptions/listen is treated like any other request, and counts as one of
// the messages being sent.
//
// A request is cancelled by closing its stream ("Cancellation"). Write closes the stream when it
// gets a notifications/cancelled for the request; the notification itself is not sent. A request
// that was not sent yet is dropped. If no such request is open, nothing happens. Read returns no
// outcome of a cancelled request.
//
// A stream that ends before the response is not resumed, even if its events have ids: the request
// fails with a CallLostError with MayHaveRun. Other lost calls, retries, order, bounds and the
// content of errors are the same as with [DialStreamable]. The caller must send a lost
// subscriptions/listen again.
//
// Close closes every stream, which cancels the open requests.
func DialStateless(o Options) transport.Conn {
	c := &stateless{httpConn: newHTTPConn(o), requestHeaders: o.RequestHeaders}
	if c.requestHeaders == nil {
		c.requestHeaders = func(wire.Message) map[string]string { return nil }
	}
	c.flavour = c
	close(c.ready)
	return c
}

// A stateless is the Conn to a server of streamable HTTP without sessions. Its only goroutines are
// those of the messages being sent.
type stateless struct {
	*httpConn
	requestHeaders func(wire.Message) map[string]string
}

// Write starts to send m, or cancels a request.
func (c *stateless) Write(m wire.Message, relatedTo wire.ID) error {
	if m.Kind() == wire.Response {
		return errResponseNotAllowed
	}
	return c.httpConn.Write(m, relatedTo)
}

// cancelLocked closes the stream of the request id.
func (c *stateless) cancelLocked(_ *outgoingPost, id wire.ID) error {
	if target := c.open[id]; target != nil {
		delete(c.open, id)
		target.cancel()
	}
	return nil
}

func (c *stateless) prepare(p *outgoingPost) (*httpTarget, http.Header) {
	header := c.baseHeader.Clone()
	for name, value := range c.requestHeaders(p.m) {
		header.Set(name, value)
	}
	return c.httpTarget, header
}

func (c *stateless) handleResponse(p *outgoingPost, resp *http.Response) {
	p.turn.pass()
	if mediaType(resp) == eventStream {
		c.readStream(p, resp)
	} else if body, ok := p.readBody(resp); ok {
		p.finishUnanswered(resp, body)
	}
}

// readStream reads the stream of the HTTP response to p to its end.
func (c *stateless) readStream(p *outgoingPost, resp *http.Response) {
	handle, stop := p.eventHandler()
	defer stop()
	_, err := readEvents(c.events(), resp, handle)
	if !p.completed {
		p.streamEnded(resp, err)
	}
}

func (c *stateless) onResult(*outgoingPost, wire.Message) {}

func (c *stateless) knowsSession(*outgoingPost) bool { return false }

func (c *stateless) mismatch(p *outgoingPost) error {
	if p.m.Method() == protocol.MethodServerDiscover {
		return ErrNotStateless
	}
	return nil
}

func (c *stateless) mayRespondElsewhere() bool { return false }

func (c *stateless) endSession() {}
