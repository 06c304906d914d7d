package httpserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A statelessExchange is one request of the modern generation and its response. It is the
// [transport.Conn] for Options.ServeStateless: Read returns the request, and written messages go to
// the client in the response to its POST. The exchange ends when the response is written, Close is
// called, or the client disconnects, which cancels the request. Read then returns
// [transport.ErrClosed].
type statelessExchange struct {
	server       *Server
	principal    principalID
	request      wire.Message
	isListen     bool            // request is a subscriptions/listen
	jsonOnly     bool            // the client does not accept events
	requestRead  bool            // Read has returned request; used by the reading goroutine only
	disconnected <-chan struct{} // closed when the client disconnects
	closed       chan struct{}   // closed when ended is set
	refs         atomic.Int32    // number of users: ServeStateless and the HTTP exchange
	lease        *bodyLease      // lease for the request body
	logID        string          // id in logs

	mu           sync.Mutex
	ended        bool
	hasResponse  bool
	status       int           // HTTP status of the response if it is sent as JSON
	writer       *streamWriter // nil once the HTTP exchange has ended
	queue        eventQueue
	backlog      backlog
	lastProgress time.Time // time of the client's last read, or of the start of the backlog
}

func newStatelessExchange(x *httpExchange, p *postedMessage) *statelessExchange {
	e := &statelessExchange{
		server: x.srv, logID: newLogID(), principal: x.principal, request: p.m, lease: p.lease,
		isListen:     p.m.Method() == protocol.MethodSubscriptionsListen,
		jsonOnly:     p.accept == acceptJSON,
		disconnected: x.r.Context().Done(), closed: make(chan struct{}),
		status: http.StatusOK, writer: newStreamWriter(x.w),
	}
	e.backlog.disconnect, e.backlog.logID = e.disconnect, e.logID
	e.refs.Store(2)
	return e
}

// newLogID returns a log id for a stateless exchange.
func newLogID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// maxListenBacklog is the maximum backlog, in bytes, of a subscription whose client has read
// nothing for stallTimeout. The client of such a subscription is disconnected, because a
// subscription does not end by itself, and its client can subscribe and read the lists again after
// a reconnect.
const (
	maxListenBacklog = 256 << 10
	stallTimeout     = 5 * time.Second
)

// release drops one reference. Dropping the last reference frees the slot.
func (e *statelessExchange) release() {
	if e.refs.Add(-1) > 0 {
		return
	}
	e.lease.release()
	e.server.stateless.remove(e)
}

// Read implements transport.Conn. It returns the request, unless the exchange has already ended,
// and then blocks until the exchange has ended.
func (e *statelessExchange) Read() (wire.Message, wire.ID, error) {
	if !e.requestRead {
		e.requestRead = true
		select {
		case <-e.closed:
		case <-e.disconnected:
		default:
			return e.request, "", nil
		}
		e.server.rejections.report(e.request, e.logID, errClientGone)
	}
	select {
	case <-e.closed:
	case <-e.disconnected:
		_ = e.Close()
	}
	return wire.Message{}, "", transport.ErrClosed
}

// errNoServerRequests is the error of Write for a request or batch, which clients without a session
// do not accept.
var errNoServerRequests = errors.New("a client without a session accepts no requests")

// Write implements transport.Conn. Notifications are sent on the response stream, which ends with
// the response. A response to another id is dropped, and so is a notification to a client that
// accepts only JSON. Write never waits for the client. Options.MessageLimit limits the unsent
// messages; for a subscription, maxListenBacklog limits them if the client has read nothing for
// stallTimeout.
func (e *statelessExchange) Write(m wire.Message, _ wire.ID) error {
	e.mu.Lock()
	defer e.accountAndUnlock()
	switch {
	case e.ended:
		return transport.ErrClosed
	case m.Kind() == wire.Request || m.Kind() == wire.Batch:
		return errNoServerRequests
	case m.Kind() == wire.Response && m.ID() != e.request.ID(),
		m.Kind() == wire.Notification && e.jsonOnly:
		return nil
	case e.queue.unsent >= e.server.opts.MessageLimit,
		e.queue.unsent >= maxListenBacklog && e.isListen &&
			time.Since(e.lastProgress) > stallTimeout:
		return transport.ErrFull
	}
	e.appendLocked(m.Raw())
	if m.Kind() == wire.Response {
		e.hasResponse, e.status = true, responseStatus(m)
		e.endLocked(transferTimeout(int64(e.queue.unsent)))
	}
	e.writer.wake()
	return nil
}

// Backlogged reports whether the unsent messages reach an eighth of MessageLimit.
func (e *statelessExchange) Backlogged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended && e.queue.unsent >= e.server.opts.MessageLimit/8
}

// Close implements transport.Conn. If there is no response yet, a connected client gets an error,
// which it must read within closeDrainTimeout; Close does not wait for the client.
func (e *statelessExchange) Close() error {
	e.mu.Lock()
	defer e.accountAndUnlock()
	e.endLocked(closeDrainTimeout)
	return nil
}

// disconnect ends the exchange because its client does not read, and has the largest backlog of
// all clients. Unsent messages are dropped at once.
func (e *statelessExchange) disconnect(int64) {
	e.mu.Lock()
	defer e.accountAndUnlock()
	if e.writer == nil {
		return
	}
	e.endLocked(0)
	e.writer.setFinalDeadline(0)
	e.queue = eventQueue{}
}

// accountAndUnlock releases mu and updates the server's backlog.
func (e *statelessExchange) accountAndUnlock() {
	delta := e.backlog.change(e.queue.unsent)
	e.mu.Unlock()
	e.server.backlogQuota.add(&e.backlog, delta)
}

var errUnanswered = wire.Errorf(wire.CodeInternalError,
	"The request has ended without a response; outcome unknown: the call may have run")

// endLocked ends the exchange. The client must read pending messages within timeout.
func (e *statelessExchange) endLocked(timeout time.Duration) {
	if e.ended {
		return
	}
	e.ended = true
	close(e.closed)
	if !e.hasResponse {
		e.appendLocked(wire.NewErrorResponse(e.request.ID(), errUnanswered).Raw())
	}
	e.writer.setFinalDeadline(timeout)
	e.writer.wake()
}

func (e *statelessExchange) appendLocked(text []byte) {
	if e.queue.unsent == 0 {
		e.lastProgress = time.Now()
	}
	e.queue.append(text)
}

// respond sends the messages until the exchange has ended or the client disconnects. It writes the
// HTTP header only when the first message is known, because a response without other messages may
// need an HTTP status other than 200. Such a response is sent as JSON, unless the status is 200 and
// the client prefers events. Otherwise, and if there is no message within keepAliveInterval, the
// method respond sends an event stream. For a client that accepts only JSON, it waits for the
// response without a time limit. The method respond returns false if the client did not get the
// complete response; then the caller must call abort.
func (e *statelessExchange) respond(ctx context.Context, accepted acceptedFormat) bool {
	sw := e.writer
	defer e.finish()
	for wait := true; wait; wait = e.jsonOnly && !e.hasEnded() {
		if !sw.waitForWake(ctx, keepAliveInterval) && !e.responded() {
			return false
		}
	}
	switch response, status := e.soleResponse(); {
	case response != nil && (status != http.StatusOK || accepted != acceptSSE):
		writeJSON(sw.w, status, response)
		return true
	case e.jsonOnly:
		return false // the client was disconnected
	}
	beginSSE(sw.w)
	return sw.sendEvents(ctx, nil, "", e.next)
}

func (e *statelessExchange) responded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasResponse
}

func (e *statelessExchange) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// soleResponse returns the response and its status; nil if there is no response yet or there are
// other unwritten messages.
func (e *statelessExchange) soleResponse() ([]byte, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended || len(e.queue.events) != 1 { // no events: the client was disconnected
		return nil, 0
	}
	return e.queue.events[0], e.status
}

// next marks the previous batch as sent and returns the next batch; see [streamWriter.sendEvents].
func (e *statelessExchange) next(previous [][]byte) (batch [][]byte, first int, more bool) {
	e.mu.Lock()
	defer e.accountAndUnlock()
	e.queue.drop(min(len(previous), len(e.queue.events))) // there are none after disconnect
	e.lastProgress = time.Now()
	batch, first = e.queue.batch(previous)
	return batch, first, !e.ended
}

// finish ends the HTTP exchange and the statelessExchange.
func (e *statelessExchange) finish() {
	e.mu.Lock()
	e.endLocked(0)
	_ = http.NewResponseController(e.writer.w).SetWriteDeadline(time.Time{}) // set by endLocked
	e.writer = nil
	e.queue = eventQueue{}
	e.accountAndUnlock()
	e.release()
}
