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
	"mcpgateway/internal/weburl"
	"mcpgateway/internal/wire"
)

// DialHTTPSSE returns the Conn to a server of the transport HTTP+SSE, which revision 2024-11-05
// defined before streamable HTTP. It only checks the URL and reads the files of o.TLS. The first
// call of Write opens the server's stream of events. On this stream the server first sends the
// endpoint for the POSTs, and then all its messages. Written messages wait for the endpoint. If
// there is no stream, or no endpoint within a minute, the written requests fail with a
// CallLostError, and the connection ends.
//
// An endpoint on another origin than the stream is rejected, because the headers and messages are
// not meant for other servers. A second endpoint, and a message that arrives before the first
// endpoint, are ignored.
//
// Order, bounds, cancellation, retries and the content of errors are the same as with
// [DialStreamable]. Errors also do not show the query of the endpoint, because it contains the
// session. A request fails with a CallLostError if its POST was rejected, or if the connection
// broke before all of the POST was written. The response to any other request arrives on the
// stream, or, from some servers, in the HTTP response. If the connection breaks after the POST was
// written, the response may still arrive. A cancelled request may still be answered.
//
// The connection ends with the stream, which cannot be resumed. The open requests are then lost,
// and Read returns an error, which wraps io.EOF if the server ended the stream in an orderly way.
// If a POST is rejected because the session no longer exists, and an earlier POST was accepted,
// Read ends with [ErrSessionLost].
//
// Close ends the stream, which ends the session.
func DialHTTPSSE(o Options) transport.Conn {
	c := &httpSSEConn{httpConn: newHTTPConn(o)}
	c.flavour = c
	return c
}

// endpointTimeout is the maximum time until the server sends its endpoint.
const endpointTimeout = time.Minute

// An httpSSEConn is the Conn to a server of HTTP+SSE. It has one goroutine for the stream of
// events, besides those of the messages being sent.
type httpSSEConn struct {
	*httpConn
	openOnce sync.Once
	endpoint *httpTarget // set before ready is closed
	accepted bool        // a POST was accepted; guarded by httpConn.mu
}

// Write starts to send m. The first call that succeeds opens the stream: from then on an error of
// the stream can be reported as the error of a message.
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
	if c.state == connOpen {
		c.goroutines.start(func() { c.end(c.readStream()) })
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
	p.turn.pass()
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
	events := c.events()
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

// notEOF replaces io.EOF by io.ErrUnexpectedEOF: a stream that ends before the connection is
// established does not end in an orderly way.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readEndpoint reads events until one contains the endpoint, and returns the endpoint.
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

// maxEndpoint bounds the URL of an endpoint, in bytes. Servers usually reject longer URLs.
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
	if weburl.Origin(u) != weburl.Origin(base) {
		return nil, fmt.Errorf("the server names an endpoint on another origin, %s; it is refused",
			weburl.Origin(u))
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
