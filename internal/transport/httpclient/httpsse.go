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
	c := &sseConn{httpConn: newHTTPConn(o)}
	c.kind = c
	return c
}

// endpointTime is how long a server may take until it has named its endpoint.
const endpointTime = time.Minute

// An sseConn is the Conn to a server of HTTP+SSE. Beside the messages under way it
// runs a goroutine for the stream of events (listen).
type sseConn struct {
	*httpConn
	opening  sync.Once
	endpoint *site // set before ready is closed
	inUse    bool  // a POST was taken; guarded by httpConn.mu
}

// Write opens the stream once there is a message that can be CallLostError if it fails.
func (c *sseConn) Write(m wire.Message, about wire.ID) error {
	err := c.httpConn.Write(m, about)
	if err == nil {
		c.opening.Do(c.openUp)
	}
	return err
}

func (c *sseConn) openUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.goLocked(func() { c.end(c.listen()) })
	}
}

func (c *sseConn) depart(p *post) (*site, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.session = c.inUse
	return c.endpoint, c.always.Clone()
}

func (c *sseConn) take(p *post, resp *http.Response) {
	taken := resp.StatusCode < 300
	if taken {
		c.mu.Lock()
		c.inUse = true
		c.mu.Unlock()
	}
	p.letOn()
	body, ok := p.readBody(resp)
	switch {
	case !ok:
	case taken:
		p.settle() // an answer comes on the stream
	default:
		p.conclude(resp, body)
	}
}

func (c *sseConn) answered(*post, wire.Message) {}

func (c *sseConn) misfit(*post) error { return nil }

func (c *sseConn) knows(*post) bool { return false }

func (c *sseConn) answersElsewhere() bool { return true }

func (c *sseConn) goodbye() {}

// listen opens the stream, reads it to its end and returns why that came.
func (c *sseConn) listen() error {
	late := time.AfterFunc(endpointTime, func() {
		c.end(fmt.Errorf("the server has named no endpoint within %v", endpointTime))
	})
	defer late.Stop()
	opening := &errand{tries: maxTries, harmless: true, method: http.MethodGet, log: c.log}
	resp, err := c.openStream(c.ctx, c.always.Clone(), opening)
	if err != nil {
		return fmt.Errorf("no stream of events: %w", broken(err))
	}
	defer resp.Body.Close()
	events := sse.NewReader(c.limit, c.intake)
	defer events.Close()
	events.Open(resp.Body)
	name, err := endpointEvent(events)
	if err != nil {
		return fmt.Errorf("the stream of events ended before it named an endpoint: %w", broken(c.clean(err)))
	}
	to, err := endpointAt(resp.Request.URL, name)
	if err != nil {
		return c.clean(err)
	}
	to.User = c.url.User
	c.endpoint = c.at(to)
	late.Stop()
	close(c.ready)
	_, err = events.Each(c.hear)
	return fmt.Errorf("the stream of events ended: %w", c.endpoint.clean(err))
}

// broken returns err, or another one if it is the io.EOF of an orderly end: it is
// none before the conversation has begun.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// endpointEvent reads on to the event that names the endpoint.
func endpointEvent(events *sse.Reader) (string, error) {
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

// endpointAt returns the URL that a server's stream at base names as its
// endpoint. It is not trusted any further than to choose a path and a query.
func endpointAt(base *url.URL, name string) (*url.URL, error) {
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
