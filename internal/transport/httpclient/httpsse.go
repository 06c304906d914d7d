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

	"mcpgateway/internal/sse"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// DialHTTPSSE returns the Conn to a server of the transport HTTP+SSE, which the revision
// 2024-11-05 had before streamable HTTP. It only checks the URL. The first message that is
// written opens the server's stream of events. On this stream the server sends first the endpoint
// for the POSTs and then all its messages. Written messages wait for the endpoint. If there is no
// stream, or no endpoint within a minute, they fail with a CallLostError and the connection ends.
//
// An endpoint on another origin than the stream is rejected, because the headers and messages are
// not meant for others. A second endpoint is ignored, and so is a message that arrives before the
// first.
//
// Order, bounds, cancellation, retries and the content of errors are as with [DialStreamable];
// the query of the endpoint, which contains the session, is not shown either. A request fails
// with a CallLostError if its POST was rejected, or broke before all of it was written. Other
// requests wait for the response on the stream, or get it in the HTTP response, as from some
// servers. If the POST breaks later, the response may still arrive. A cancelled request
// may still be answered.
//
// The connection ends with the stream, which cannot be resumed. Read then returns an error, which
// wraps io.EOF if the server ended the stream in an orderly way, and the open requests are lost.
// If a POST is rejected because the session is gone, though earlier ones were accepted, Read ends
// with [ErrSessionLost].
//
// Close ends the stream, and so the session.
func DialHTTPSSE(o Options) transport.Conn {
	c := &httpSSEConn{httpConn: newHTTPConn(o)}
	c.flavour = c
	return c
}

// endpointTimeout is how long a server may take to send its endpoint.
const endpointTimeout = time.Minute

// An httpSSEConn is the Conn to a server of HTTP+SSE. Besides the messages being sent it has a
// goroutine for the stream of events.
type httpSSEConn struct {
	*httpConn
	openOnce sync.Once
	endpoint *httpTarget // set before ready is closed
	accepted bool        // a POST was accepted; guarded by httpConn.mu
}

// Write starts to send m. The first call opens the stream, because there is now a message that
// can fail if the stream does.
func (c *httpSSEConn) Write(m wire.Message, relatedTo wire.ID) error {
	err := c.httpConn.Write(m, relatedTo)
	if err == nil {
		c.openOnce.Do(c.startStream)
	}
	return err
}

// startStream starts to read the stream.
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
	accepted := resp.StatusCode < 300
	if accepted {
		c.mu.Lock()
		c.accepted = true
		c.mu.Unlock()
	}
	p.unblockNext()
	body, ok := p.readBody(resp)
	switch {
	case !ok:
	case accepted:
		p.claim() // the response arrives on the stream
	default:
		p.finishUnanswered(resp, body)
	}
}

func (c *httpSSEConn) onResult(*outgoingPost, wire.Message) {}

func (c *httpSSEConn) mismatch(*outgoingPost) error { return nil }

func (c *httpSSEConn) knowsSession(*outgoingPost) bool { return false }

func (c *httpSSEConn) mayRespondElsewhere() bool { return true }

func (c *httpSSEConn) endSession() {}

// readStream opens the stream, reads it to its end and returns the reason for that end.
func (c *httpSSEConn) readStream() error {
	timeout := time.AfterFunc(endpointTimeout, func() {
		c.end(fmt.Errorf("the server has named no endpoint within %v", endpointTimeout))
	})
	defer timeout.Stop()
	retry := &retryPolicy{
		maxRetries: maxRetries, idempotent: true, method: http.MethodGet, log: c.log,
	}
	resp, err := c.openStream(c.ctx, c.baseHeader.Clone(), retry)
	if err != nil {
		return fmt.Errorf("no stream of events: %w", notEOF(err))
	}
	defer resp.Body.Close()
	events := sse.NewReader(c.limit, c.quota)
	defer events.Close()
	events.Open(resp.Body)
	name, err := readEndpoint(events)
	if err != nil {
		return fmt.Errorf("the stream of events ended before it named an endpoint: %w",
			notEOF(c.redactError(err)))
	}
	endpoint, err := resolveEndpoint(resp.Request.URL, name)
	if err != nil {
		return c.redactError(err)
	}
	endpoint.User = c.url.User
	c.endpoint = c.withURL(endpoint)
	timeout.Stop()
	close(c.ready)
	_, err = events.Each(c.handleServerEvent)
	return fmt.Errorf("the stream of events ended: %w", c.endpoint.redactError(err))
}

// notEOF replaces io.EOF by io.ErrUnexpectedEOF: before the connection is established the stream
// cannot end in an orderly way.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readEndpoint reads to the event that contains the endpoint.
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

// maxEndpoint bounds the URL of an endpoint, in bytes. No server accepts longer URLs.
const maxEndpoint = 8 << 10

// resolveEndpoint returns the URL of the endpoint that the server has sent on its stream at base.
// The server may only choose a path and a query.
func resolveEndpoint(base *url.URL, name string) (*url.URL, error) {
	if len(name) > maxEndpoint {
		return nil, fmt.Errorf("the endpoint that the server names is longer than %d bytes",
			maxEndpoint)
	}
	u, err := base.Parse(strings.TrimSpace(name))
	if err != nil {
		return nil, errors.New("the endpoint that the server names is no URL")
	}
	if origin(u) != origin(base) {
		return nil, fmt.Errorf("the server names an endpoint on another origin, %s; it is refused",
			origin(u))
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
