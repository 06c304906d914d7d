package httpclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/sse"

	"mcpgateway/internal/wire"
)

// DialHTTPSSE returns the Conn to a server of the transport HTTP+SSE, which the
// revision 2024-11-05 had before there was streamable HTTP. It only looks at the
// URL; with the first message that is written it opens the server's stream of
// events. All that the server says comes on it, first of all the endpoint to which
// messages are then posted. What is written waits for that. If there is no stream,
// or no endpoint within a minute, it is CallLostError and the conversation is over.
//
// An endpoint on another origin than that of the stream is refused, for the
// headers and the messages are not for others. One that the server names later is
// passed over, and so is a message that comes before the first.
//
// Order, bounds, cancellation, what is sent again and what errors show are as
// with [DialStreamable]; the endpoint's query, which holds the session, is not shown
// either. A request whose POST was refused is CallLostError, and so is one whose POST broke
// before all of it was written. Every other request waits for its answer on the
// stream, or has it in the POST's response, as some servers do; that the POST breaks
// then says nothing of the answer. A cancelled request may still be answered.
//
// The conversation is over when the stream ends: it cannot be resumed. Read says
// so, with io.EOF wrapped if the server ended it in an orderly way, and whatever
// had no answer until then will have none. If a POST is refused because the
// session is gone, though earlier ones were taken, Read ends with
// [ErrSessionLost].
//
// Close ends the stream, and with it the session.
func DialHTTPSSE(o Options) transport.Conn {
	c := &httpSSEConn{httpConn: newHTTPConn(o)}
	c.flavour = c
	return c
}

// endpointTimeout is how long a server may take until it has named its endpoint.
const endpointTimeout = time.Minute

// An httpSSEConn is the Conn to a server of HTTP+SSE. Beside the messages under way it
// runs a goroutine for the stream of events (listen).
type httpSSEConn struct {
	*httpConn
	openOnce sync.Once
	endpoint *httpTarget // set before ready is closed
	accepted bool        // a POST was taken; guarded by httpConn.mu
}

// Write opens the stream once there is a message that can be CallLostError if it fails.
func (c *httpSSEConn) Write(m wire.Message, about wire.ID) error {
	err := c.httpConn.Write(m, about)
	if err == nil {
		c.openOnce.Do(c.startStream)
	}
	return err
}

func (c *httpSSEConn) startStream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr == nil {
		c.goLocked(func() { c.end(c.readStream()) })
	}
}

func (c *httpSSEConn) prepare(p *outgoingPost) (*httpTarget, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.inSession = c.accepted
	return c.endpoint, c.baseHeader.Clone()
}

func (c *httpSSEConn) handleResponse(p *outgoingPost, resp *http.Response) {
	taken := resp.StatusCode < 300
	if taken {
		c.mu.Lock()
		c.accepted = true
		c.mu.Unlock()
	}
	p.unblockNext()
	body, ok := p.readBody(resp)
	switch {
	case !ok:
	case taken:
		p.claim() // an answer comes on the stream
	default:
		p.finishUnanswered(resp, body)
	}
}

func (c *httpSSEConn) onResult(*outgoingPost, wire.Message) {}

func (c *httpSSEConn) mismatch(*outgoingPost) error { return nil }

func (c *httpSSEConn) knowsSession(*outgoingPost) bool { return false }

func (c *httpSSEConn) mayRespondElsewhere() bool { return true }

func (c *httpSSEConn) endSession() {}

// readStream opens the stream, reads it to its end and returns why that came.
func (c *httpSSEConn) readStream() error {
	late := time.AfterFunc(endpointTimeout, func() {
		c.end(fmt.Errorf("the server has named no endpoint within %v", endpointTimeout))
	})
	defer late.Stop()
	opening := &retryPolicy{maxRetries: maxRetries, idempotent: true, method: http.MethodGet, log: c.log}
	resp, err := c.openStream(c.ctx, c.baseHeader.Clone(), opening)
	if err != nil {
		return fmt.Errorf("no stream of events: %w", notEOF(err))
	}
	defer resp.Body.Close()
	events := sse.NewReader(c.limit, c.quota)
	defer events.Close()
	events.Open(resp.Body)
	name, err := readEndpoint(events)
	if err != nil {
		return fmt.Errorf("the stream of events ended before it named an endpoint: %w", notEOF(c.redactError(err)))
	}
	to, err := resolveEndpoint(resp.Request.URL, name)
	if err != nil {
		return c.redactError(err)
	}
	to.User = c.url.User
	c.endpoint = c.withURL(to)
	late.Stop()
	close(c.ready)
	_, err = events.Each(c.handleServerEvent)
	return fmt.Errorf("the stream of events ended: %w", c.endpoint.redactError(err))
}

// notEOF returns err, or another one if it is the io.EOF of an orderly end: it is
// none before the conversation has begun.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readEndpoint reads on to the event that names the endpoint.
func readEndpoint(events *sse.Reader) (string, error) {
	for {
		e, err := events.Next()
		_, isLarge := errors.AsType[*transport.OversizedError](err)
		switch {
		case isLarge:
		case err != nil:
			return "", err
		case e.Type == "endpoint":
			return string(e.Data), nil
		}
	}
}

// maxEndpoint is more than any server takes for a URL, in bytes.
const maxEndpoint = 8 << 10

// resolveEndpoint returns the URL that a server's stream at base names as its
// endpoint. It is not trusted any further than to choose a path and a query.
func resolveEndpoint(base *url.URL, name string) (*url.URL, error) {
	if len(name) > maxEndpoint {
		return nil, fmt.Errorf("the endpoint that the server names is longer than %d bytes", maxEndpoint)
	}
	u, err := base.Parse(strings.TrimSpace(name))
	if err != nil {
		return nil, errors.New("the endpoint that the server names is no URL")
	}
	if origin(u) != origin(base) {
		return nil, fmt.Errorf("the server names an endpoint on another origin, %s; it is refused", origin(u))
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
