package httpclient

import (
	"errors"
	"net/http"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/sse"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// ErrNotStateless is what the CallLostError of a request server/discover wraps if the server
// answered as one does that knows only revisions with sessions: with 400, 404 or
// 405, and without a JSON-RPC response to that request ("Backward Compatibility").
// It is worth trying [DialStreamable] then. Any other status does not tell of the revisions.
var ErrNotStateless = errors.New("this may be no server of a revision without sessions")

// errResponseNotAllowed is what Write says to a response.
var errResponseNotAllowed = errors.New("a response cannot be sent: in this revision the server asks nothing")

// DialStateless returns the Conn to a server of streamable HTTP, the transport as
// the revisions without sessions have it, 2026-07-28 and later. It only looks at
// the URL; a server that cannot be reached shows when a request is written, as that
// request's [*CallLostError].
//
// Each request and notification is a POST of its own, with the headers that
// [Options].Describe has for it, and there is nothing else: no session, no GET,
// no DELETE. A response cannot be written. What comes on the stream of a request
// Read returns with its id as about, the answer last and without. A stream may live
// for as long as both sides wish, and the server may be as late with its headers as
// with its answer: a subscriptions/listen is a request like any other, and one of
// those that may be under way at once.
//
// Closing its stream is what cancels a request ("Cancellation"). So it is what Write
// does with a notifications/cancelled about it, which itself is not sent; what was
// not sent either is dropped, and nothing happens if no such request is open. Read
// tells nothing of the request from then on.
//
// A stream that ends before the answer is not resumed, even where its events have
// ids: the request is CallLostError, with Ran. What else makes a request CallLostError, what is sent
// again, order, bounds and what errors show are as with [DialStreamable]. That
// subscriptions/listen has to be sent again is for others to see.
//
// Close closes every stream, and so cancels what is open.
func DialStateless(o Options) transport.Conn {
	c := &stateless{httpConn: newHTTPConn(o), requestHeaders: o.RequestHeaders}
	if c.requestHeaders == nil {
		c.requestHeaders = func(wire.Message) map[string]string { return nil }
	}
	c.flavour = c
	close(c.ready)
	return c
}

// A stateless is the Conn to a server of streamable HTTP without sessions. It runs
// nothing beside the messages under way.
type stateless struct {
	*httpConn
	requestHeaders func(wire.Message) map[string]string
}

func (c *stateless) Write(m wire.Message, about wire.ID) error {
	if m.Kind() == wire.Response {
		return errResponseNotAllowed
	}
	return c.httpConn.Write(m, about)
}

// cancelLocked closes the stream of the request about; p is not needed for that.
func (c *stateless) cancelLocked(_ *outgoingPost, about wire.ID) error {
	if target := c.open[about]; target != nil {
		delete(c.open, about)
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
	p.unblockNext()
	if mediaType(resp) == eventStream {
		c.readStream(p, resp)
	} else if body, ok := p.readBody(resp); ok {
		p.finishUnanswered(resp, body)
	}
}

// readStream reads the stream that answers p to its end, which is final.
func (c *stateless) readStream(p *outgoingPost, resp *http.Response) {
	hear, stop := p.eventHandler()
	defer stop()
	if _, err := readEvents(sse.NewReader(c.limit, c.quota), resp, hear); !p.settled {
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
