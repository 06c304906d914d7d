package httpclient

import (
	"errors"
	"net/http"
	"time"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// ErrSessionLost is what a Conn over HTTP ends with when the server does not know
// its session any more (streamable HTTP, "Session Management" 3 and 4). A new
// Conn has to begin with initialize.
var ErrSessionLost = errors.New("the server has forgotten the session")

// ErrNotStreamable is what the CallLostError of the request initialize wraps if the
// server answered as one does that has no streamable HTTP: with 400, 404 or 405,
// and without a JSON-RPC response to that request ("Backwards Compatibility").
// It is worth trying [DialHTTPSSE] then.
var ErrNotStreamable = errors.New("this may be no server of streamable HTTP")

// DialStreamable returns the Conn to a server of MCP's streamable HTTP transport as
// the revisions with an initialize handshake have it, 2024-11-05 to 2025-11-25.
// It only looks at the URL; a server that cannot be reached shows when a request
// is written, as that request's [*CallLostError].
//
// Each message is a POST of its own. A notification has been taken by the server
// before what is written after it is sent, with two exceptions: one that the
// server leaves hanging for half a minute holds nothing up any longer, and
// notifications/cancelled goes as soon as the request that it is about has been
// written. That request is given up after that: Read tells nothing of it any more.
//
// The session id and the revision are picked up from the answer to initialize
// and sent from then on. Once notifications/initialized was accepted the Conn
// listens on a GET stream for what the server says of itself, if it has one; what
// is written next waits until that stream is open or refused, for a second at
// most, so that the server has where to put its questions. A stream that breaks is resumed where the server numbers its events.
//
// A request whose answer does not come is CallLostError, with Ran unless it is sure that
// the server did not act on it. A request is sent again, a few times, only if it
// was surely not executed (no connection, or 429 or 503 with a Retry-After of at
// most 30 s), or if executing it twice does no harm, such as tools/list, and the
// connection broke or a gateway gave 502 to 504. When the server has forgotten
// the session every open request is CallLostError, at the latest after a second, and Read ends with
// [ErrSessionLost]; see [IsUnknownSession].
//
// Errors show the status and how a body begins, but neither header values nor
// more of the URL than its host.
//
// Close ends the session with a DELETE that is given a second.
func DialStreamable(o Options) transport.Conn {
	c := &streamable{httpConn: newHTTPConn(o), standaloneReady: make(chan struct{})}
	c.flavour = c
	close(c.ready)
	return c
}

// A streamable is the Conn to a server of streamable HTTP. Beside the messages
// under way it runs a goroutine for the GET stream (listen).
type streamable struct {
	*httpConn
	standaloneReady chan struct{} // closed when the GET stream is open, or refused

	// Guarded by httpConn.mu.
	sessionID     string
	revision      string
	standalone    bool
	sessionChecks int       // times that the server was asked whether it knows the session
	first404      time.Time // when it first refused a request with 404, since it has answered one otherwise; zero = it has not
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
	p.unblockNext()
	if mediaType(resp) == eventStream {
		c.readStream(p, resp)
	} else if body, ok := p.readBody(resp); ok {
		p.finishUnanswered(resp, body)
	}
}

// handleAccepted takes from a response what concerns the conversation.
func (c *streamable) handleAccepted(p *outgoingPost, resp *http.Response) {
	switch p.m.Method() {
	case protocol.MethodInitialize:
		c.setSession(resp.Header.Get(protocol.HeaderSessionID))
	case protocol.NotificationInitialized:
		c.startStandaloneStream()
		enough := time.NewTimer(standaloneTimeout)
		defer enough.Stop()
		select {
		case <-c.standaloneReady:
		case <-enough.C: // some servers send no headers before there is an event
		case <-c.ctx.Done():
		}
	}
}

// standaloneTimeout is how long the GET stream is waited for.
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
