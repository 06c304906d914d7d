package httpserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A statelessExchange is one request of the modern generation and its response. It is the
// [transport.Writer] for Options.ServeRequest: written messages go to the client in the response to
// its POST. All of its work, except Write and Close, is done on the goroutine of the HTTP request.
type statelessExchange struct {
	server   *Server
	from     sender
	logID    string // id in logs
	request  wire.Message
	jsonOnly bool // the client does not accept events

	mu           sync.Mutex
	state        exchangeState
	cancel       func()        // result of ServeRequest; nil = unknown, or not needed any more
	status       int           // HTTP status of the response if it is sent as JSON
	writer       *streamWriter // nil once the HTTP exchange has ended
	streaming    bool          // messages are sent as events
	queue        eventQueue    // unwritten messages
	backlog      backlog
	lastProgress time.Time // time of the client's last read, or of the start of the backlog
}

// An exchangeState is the state of a statelessExchange.
type exchangeState int

const (
	exchangeOpen     exchangeState = iota
	exchangeAnswered               // the response was written to the exchange
	exchangeClosed                 // ended without a response; a connected client gets an error
	exchangeDropped                // the unsent messages were dropped; the stream must not end well
)

func newStatelessExchange(x *httpExchange, p *postedMessage) *statelessExchange {
	e := &statelessExchange{
		server: x.srv, logID: newLogID(), from: x.from,
		request:  p.m,
		jsonOnly: p.accept == acceptJSON, status: http.StatusOK, writer: newStreamWriter(x.w),
	}
	e.backlog.disconnect, e.backlog.client = e.disconnect, e.info()
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

// call calls ServeRequest. A panic closes the exchange: net/http would recover it, and the gateway
// may have sent the call.
func (e *statelessExchange) call() {
	defer func() {
		if panicValue := recover(); panicValue != nil {
			e.info().logger(e.server.log).Error("request closed after a panic",
				"err", fmt.Sprintf("%v\n%s", panicValue, debug.Stack()))
			_ = e.Close()
		}
	}()
	cancel := e.server.opts.ServeRequest(e.info(), e.request, e)
	e.mu.Lock()
	state := e.state
	if state == exchangeOpen {
		e.cancel = cancel
	}
	e.mu.Unlock()
	if state == exchangeClosed || state == exchangeDropped { // during the call
		cancel()
	}
}

func (e *statelessExchange) info() SessionInfo {
	return sessionInfo(e.logID, e.from.Principal, e.from.profile)
}

// errNoServerRequests is the error of Write for a request or batch, which clients without a session
// do not accept.
var errNoServerRequests = errors.New("a client without a session accepts no requests")

// Write implements transport.Writer. Notifications are sent on the response stream, which ends with
// the response. A response to another id is dropped, and so is a notification to a client that
// accepts only JSON. Write never waits for the client. Options.MessageLimit limits the unsent
// messages; for a subscription, maxListenBacklog limits them if the client has read nothing for
// stallTimeout.
func (e *statelessExchange) Write(m wire.Message, _ wire.ID) error {
	e.mu.Lock()
	defer e.accountAndUnlock()
	switch {
	case e.state != exchangeOpen:
		return transport.ErrClosed
	case m.Kind() == wire.Request || m.Kind() == wire.Batch:
		return errNoServerRequests
	case m.Kind() == wire.Response && m.ID() != e.request.ID(),
		m.Kind() == wire.Notification && e.jsonOnly:
		return nil
	case e.queue.unsent >= e.server.opts.MessageLimit,
		e.queue.unsent >= maxListenBacklog && time.Since(e.lastProgress) > stallTimeout &&
			e.request.Method() == protocol.MethodSubscriptionsListen:
		return transport.ErrFull
	}
	e.appendLocked(m.Text())
	if m.Kind() == wire.Response {
		e.state, e.status, e.cancel = exchangeAnswered, responseStatus(m), nil
		e.limitStreamLocked()
	}
	e.writer.wake()
	return nil
}

func (e *statelessExchange) appendLocked(text wire.Text) {
	if e.queue.unsent == 0 {
		e.lastProgress = time.Now()
	}
	e.queue.append(text)
}

// limitStreamLocked sets the deadline for the remaining events of a stream that has ended.
func (e *statelessExchange) limitStreamLocked() {
	switch {
	case !e.streaming || e.writer == nil:
	case e.state == exchangeAnswered:
		e.writer.setFinalDeadline(transferTimeout(int64(e.queue.unsent)))
	case e.state == exchangeClosed:
		e.writer.setFinalDeadline(closeDrainTimeout)
	}
}

// Backlogged reports whether the unsent messages reach an eighth of MessageLimit.
func (e *statelessExchange) Backlogged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == exchangeOpen && e.queue.unsent >= e.server.opts.MessageLimit/8
}

// Close implements transport.Writer. If there is no response yet, the request is cancelled on
// another goroutine, and a connected client gets an error, which it must read within
// closeDrainTimeout; Close does not wait.
func (e *statelessExchange) Close() error {
	e.closeWith(errUnanswered)
	return nil
}

// closeWith is Close with the error for the client.
func (e *statelessExchange) closeWith(err *wire.Error) {
	e.mu.Lock()
	defer e.accountAndUnlock()
	if cancel := e.closeLocked(err); cancel != nil {
		e.server.stateless.cancelling.Go(cancel) // the HTTP exchange has not ended, see finish
	}
}

// endAtExpiry ends a subscription when the access token of its client expires, until stop is
// called. Calls continue: they were allowed when they were sent.
func (e *statelessExchange) endAtExpiry() (stop func() bool) {
	if e.from.expires.IsZero() || e.request.Method() != protocol.MethodSubscriptionsListen {
		return func() bool { return false }
	}
	return time.AfterFunc(time.Until(e.from.expires), func() {
		e.closeWith(wire.Errorf(wire.CodeInvalidRequest,
			"The access token has expired: subscribe again with a new one"))
	}).Stop
}

var errUnanswered = wire.Errorf(wire.CodeInternalError,
	"The request has ended without a response; outcome unknown: the call may have run")

// closeLocked ends an open exchange. A result that is not nil must be called without locks held.
func (e *statelessExchange) closeLocked(err *wire.Error) (cancel func()) {
	if e.state != exchangeOpen {
		return nil
	}
	cancel = e.cancel
	e.state, e.cancel = exchangeClosed, nil
	e.appendLocked(wire.NewErrorResponse(e.request.ID(), err).Text())
	e.limitStreamLocked()
	e.writer.wake()
	return cancel
}

// disconnect ends the exchange because its client does not read, and has the largest backlog of
// all clients. Unsent messages are dropped at once.
func (e *statelessExchange) disconnect(int64) {
	_ = e.Close()
	e.mu.Lock()
	defer e.accountAndUnlock()
	if e.writer != nil {
		e.state, e.queue = exchangeDropped, eventQueue{}
		e.writer.setFinalDeadline(0)
	}
}

// accountAndUnlock releases mu and updates the server's backlog.
func (e *statelessExchange) accountAndUnlock() {
	delta := e.backlog.reported.change(e.queue.unsent)
	e.mu.Unlock()
	e.server.backlogQuota.add(&e.backlog, delta)
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
	for wait := true; wait; wait = e.jsonOnly && e.currentState() == exchangeOpen {
		if !sw.waitForWake(ctx, keepAliveInterval) && e.currentState() != exchangeAnswered {
			return false
		}
	}
	switch response, status := e.soleResponse(); {
	case response.Len() > 0 && (status != http.StatusOK || accepted != acceptSSE):
		writeJSON(sw.w, status, response)
		return true
	case e.jsonOnly || e.currentState() == exchangeDropped:
		return false // the client was disconnected
	}
	e.mu.Lock()
	e.streaming = true
	e.limitStreamLocked()
	e.mu.Unlock()
	beginSSE(sw.w)
	return sw.sendEvents(ctx, nil, "", e.next) && e.currentState() != exchangeDropped
}

func (e *statelessExchange) currentState() exchangeState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// soleResponse returns the response and its status; "" if there is no response yet or there are
// other unwritten messages.
func (e *statelessExchange) soleResponse() (wire.Text, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == exchangeOpen || len(e.queue.events) != 1 { // no events: it was disconnected
		return wire.Text{}, 0
	}
	return e.queue.events[0], e.status
}

// next marks the previous batch as sent and returns the next batch; see [streamWriter.sendEvents].
func (e *statelessExchange) next(
	previous []wire.Text,
) (batch []wire.Text, first int, more bool) {
	e.mu.Lock()
	defer e.accountAndUnlock()
	e.queue.drop(min(len(previous), len(e.queue.events))) // there are none after disconnect
	e.lastProgress = time.Now()
	batch, first = e.queue.batch(previous)
	return batch, first, e.state == exchangeOpen
}

// finish ends the HTTP exchange. It cancels the request if there is no response.
func (e *statelessExchange) finish() {
	e.mu.Lock()
	cancel := e.closeLocked(errUnanswered)
	e.writer.removeFinalDeadline()
	e.writer = nil
	e.queue = eventQueue{}
	e.accountAndUnlock()
	if cancel != nil {
		cancel()
	}
	e.server.stateless.remove(e)
}
