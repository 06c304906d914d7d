package httpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// ErrSessionLost is the error of Read after the server has lost the session of the Conn (streamable
// HTTP, "Session Management" 3 and 4). A new Conn must start with initialize.
var ErrSessionLost = errors.New("the server has forgotten the session")

// ErrNotStreamable is wrapped by the CallLostError of the request initialize if the server
// responded like a server without streamable HTTP: with 400, 404 or 405 and no JSON-RPC response to
// that request ("Backwards Compatibility"), or with the endpoint event of HTTP+SSE. The caller can
// then try [DialHTTPSSE].
var ErrNotStreamable = errors.New("this may be no server of streamable HTTP")

// DialStreamable returns the Conn to a server of MCP's streamable HTTP transport, as defined by the
// revisions with an initialize handshake, 2024-11-05 to 2025-11-25. It only checks the URL and
// reads the files of o.TLS. If the server cannot be reached, each request fails with a
// [*transport.CallLostError].
//
// Order: each message is a POST of its own. A message is sent only after the server has accepted or
// rejected the previous notification, with two exceptions: a message waits at most half a minute,
// and notifications/cancelled is sent as soon as the cancelled request has been written. The
// cancelled request is then abandoned: Read returns no outcome of that request.
//
// Session: the Conn takes the session id and the revision from the response to initialize and sends
// them with every later message. When the server has accepted notifications/initialized, the Conn
// opens the standalone stream (GET), if the server supports it. Later messages wait, for at most a
// second, until the stream is open or rejected, so that the server has a stream for its requests. A
// stream that breaks is resumed if its events have ids.
//
// Lost calls: a request without a response fails with a CallLostError. MayHaveRun is true unless it
// is certain that the server did not act on the request. A request is retried, at most three times,
// and only if
//   - it was certainly not executed: there was no connection, or the response was 429 or 503 with a
//     Retry-After of at most 30 s; or
//   - it is idempotent, such as tools/list, and the connection broke or a proxy responded with 502
//     to 504.
//
// When the server has lost the session, every open request that gets no response within a second
// fails with a CallLostError, and Read ends with [ErrSessionLost]; see [IsUnknownSession].
//
// Errors show the status and the beginning of a body. They do not show header values, or the user,
// password and query of the URL.
//
// Close ends the session with a DELETE, which may take up to a second.
func DialStreamable(o Options) transport.Conn {
	c := &streamable{httpConn: newHTTPConn(o), standaloneReady: make(chan struct{})}
	c.flavour = c
	close(c.ready)
	return c
}

// A streamable is the Conn to a server of streamable HTTP with sessions. It has one goroutine for
// the standalone stream, besides those of the messages being sent.
type streamable struct {
	*httpConn
	standaloneReady chan struct{} // closed when the standalone stream is open, or rejected

	// Guarded by httpConn.mu.
	sessionID     string // "" = none
	revision      string // "" = not negotiated
	standalone    bool   // readStandaloneStream was started
	sessionChecks int    // number of pings of knowsSession
	// first404 is the time of the first 404 to a request since the last successful response; zero =
	// none.
	first404 time.Time
}

func (c *streamable) prepare(p *outgoingPost) (*httpTarget, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.inSession = c.sessionID != ""
	p.isInitialize = p.m.Method() == protocol.MethodInitialize
	return c.httpTarget, c.headerLocked()
}

func (c *streamable) handleResponse(p *outgoingPost, resp *http.Response) {
	if resp.StatusCode < 300 {
		c.handleAccepted(p, resp)
		c.clear404(p)
	}
	p.turn.pass()
	if mediaType(resp) == eventStream {
		c.readStream(p, resp)
	} else if body, ok := p.readBody(resp); ok {
		p.finishUnanswered(resp, body)
	}
}

// handleAccepted updates the state of the connection after p was accepted. After
// notifications/initialized it waits, at most for standaloneTimeout, for the standalone stream.
func (c *streamable) handleAccepted(p *outgoingPost, resp *http.Response) {
	switch p.m.Method() {
	case protocol.MethodInitialize:
		c.setSession(resp.Header.Get(protocol.HeaderSessionID))
	case protocol.NotificationInitialized:
		c.startStandaloneStream()
		timeout := time.NewTimer(standaloneTimeout)
		defer timeout.Stop()
		select {
		case <-c.standaloneReady:
		case <-timeout.C: // some servers send the headers with the first event
		case <-c.ctx.Done():
		}
	}
}

// standaloneTimeout is the maximum time that later messages wait for the standalone stream.
const standaloneTimeout = time.Second

func (c *streamable) onResult(p *outgoingPost, m wire.Message) {
	if p.m.Method() == protocol.MethodInitialize {
		c.setRevision(m)
	}
}

func (c *streamable) mismatch(p *outgoingPost) error {
	if p.isInitialize {
		return ErrNotStreamable
	}
	return nil
}

func (c *streamable) mayRespondElsewhere() bool { return false }

func (c *streamable) endSession() {
	if c.hasSession() {
		c.deleteSession()
	}
}

// setSession records the session that the server has opened; "" = none.
func (c *streamable) setSession(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessionID = session
}

// setRevision records the revision that the server has negotiated, unless it is not valid in a
// header.
func (c *streamable) setRevision(initialized wire.Message) {
	revision := ""
	wire.Members(initialized.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if key == "protocolVersion" {
			revision = wire.Unquote(value)
		}
	})
	if isVisibleASCII(revision) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.revision = revision
	}
}

// isVisibleASCII reports whether s consists only of visible ASCII characters, which are valid in a
// header value.
func isVisibleASCII(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

func (c *streamable) hasSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessionID != ""
}

// header returns the headers of every request.
func (c *streamable) header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headerLocked()
}

func (c *streamable) headerLocked() http.Header {
	h := c.baseHeader.Clone()
	if c.sessionID != "" {
		h.Set(protocol.HeaderSessionID, c.sessionID)
	}
	if c.revision != "" {
		h.Set(protocol.HeaderProtocolVersion, c.revision)
	}
	return h
}

const (
	// sessionCheckTimeout is the maximum time until the server responds to the ping of
	// knowsSession.
	sessionCheckTimeout = 5 * time.Second
	// max404Duration is the maximum time for which a server may respond to all requests with 404
	// but respond to pings in the same session. After that time the session counts as lost.
	max404Duration = 30 * time.Second
	// maxPingResponse is the maximum number of bytes read from the response to a ping.
	maxPingResponse = 64 << 10
)

// knowsSession sends a ping in the session, and reports whether the response contains a result. It
// returns false, without a ping, if p is not a request or is itself a ping, or if max404Duration
// has passed since first404. It returns true if p is cancelled during the ping.
func (c *streamable) knowsSession(p *outgoingPost) bool {
	if p.id == "" || p.m.Method() == protocol.MethodPing {
		return false
	}
	c.mu.Lock()
	c.sessionChecks++
	if c.first404.IsZero() {
		c.first404 = time.Now()
	}
	id, header := fmt.Sprintf("session-check-%d", c.sessionChecks), c.headerLocked()
	expired := time.Since(c.first404) > max404Duration
	c.mu.Unlock()
	if expired {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, sessionCheckTimeout)
	defer cancel()
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	ping := wire.NewRequest(wire.ID(wire.Quote(id)), protocol.MethodPing, nil)
	retry := &retryPolicy{method: protocol.MethodPing, log: c.log}
	resp, err := c.sendAuthorized(ctx, http.MethodPost, header, ping.Text(), retry)
	if err != nil {
		return p.ctx.Err() != nil // p was cancelled, which says nothing about the session
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return false
	}
	var text []byte
	hasResult := func() bool { return bytes.Contains(text, []byte(`"result"`)) }
	for part := make([]byte, 4<<10); len(text) < maxPingResponse && !hasResult(); {
		n, err := resp.Body.Read(part)
		if text = append(text, part[:n]...); err != nil {
			break
		}
	}
	return hasResult() || p.ctx.Err() != nil
}

// clear404 records that the server has accepted p in the session, if p is a request other than a
// ping.
func (c *streamable) clear404(p *outgoingPost) {
	if p.id == "" || p.m.Method() == protocol.MethodPing {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first404 = time.Time{}
}

// deleteTimeout is the maximum time until the server has ended the session.
const deleteTimeout = time.Second

// deleteSession ends the session ("Session Management" 5). A server need not support it, so
// errors are ignored.
func (c *streamable) deleteSession() {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	resp, err := c.sendAuthorized(ctx, http.MethodDelete, c.header(), wire.Text{}, &retryPolicy{})
	if err == nil {
		resp.Body.Close()
	}
}
