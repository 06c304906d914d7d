package peer

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/wire"
)

// A ResponseHandler receives the progress and the response of a call. Its methods must not block:
// they run on the goroutine that reads from the remote side, on that of a timer, or on that of a
// caller of Send, TrySend or Cancel. The caller holds no lock.
type ResponseHandler interface {
	// OnProgress is called with each progress notification, its token replaced by the Token of the
	// call. It is not called if the call has no Token.
	OnProgress(wire.Message)
	// OnResponse is called exactly once each time the call was sent: with the response of the
	// remote side (a result or an error), under the id of the Call; or with the error that replaces
	// the response: ErrTimeout, ErrCancelled, a *BadResponseError, or a *transport.CallLostError,
	// which reports whether the remote side may have acted upon the call. The last wraps
	// [transport.ErrClosed] if the connection has ended. OnResponse may send the call again.
	OnResponse(wire.Message, error)
}

// A Call is an outbound request in flight. The caller sets the exported fields before Send and must
// not change them while the call is in flight.
type Call struct {
	Handler   ResponseHandler
	Token     wire.ID       // progress token of the caller; "" = no progress wanted
	Name      []byte        // JSON string that replaces params.name; nil = unchanged
	SessionID string        // session on whose behalf the call is made; "" = none
	RelatedTo wire.ID       // request of the remote side that the call belongs to; "" = none
	Timeout   time.Duration // maximum time since the start or the last progress; 0 = no limit
	// Internal is true if the gateway makes the call for itself. The call then does not count as
	// use of the connection; see [Activity].
	Internal bool
	// RemoteCancels is true if the remote side may end the call by notifications/cancelled, as a
	// server on stdio ends subscriptions/listen. The call then completes with ErrCancelled.
	RemoteCancels bool

	noCancelNotice bool        // abandoning the call sends no notification
	cancelled      atomic.Bool // next to the booleans, which makes a Call 8 bytes smaller
	sentVia        atomic.Pointer[transmission]
	firstSend      transmission // target of sentVia until the call is sent a second time

	mu       sync.Mutex
	deadline time.Time // zero = none: without a Timeout, not sent, paused or expired
	pauses   int       // number of calls of PauseTimeout without a call of ResumeTimeout
}

// A transmission records one entry of a call in the table of calls of a Peer. TrySend makes the
// entry. A call that is sent again, over the same or another Peer, gets a new entry.
type transmission struct {
	peer  *Peer     // Peer in whose table the entry is or was
	id    int64     // key of the entry, and id under which the request is sent
	at    time.Time // time at which the call was sent
	phase atomic.Int32
	// see Call.Reconnects; it includes those of the entries before
	reconnects atomic.Uint32
	// cancellation that TrySend writes after the request; set before the phase abandonedInWrite
	notice *wire.Message
}

// The phases of a transmission.
const (
	beingWritten     = iota + 1 // TrySend has not returned from the write of the request
	abandonedInWrite            // the call was abandoned in the phase beingWritten
	written                     // TrySend has written the request, or has failed
)

// ID returns the id under which the call was last sent; "" = never sent.
func (c *Call) ID() wire.ID {
	if n := c.number(); n != 0 {
		return wire.ID(strconv.FormatInt(n, 10))
	}
	return ""
}

func (c *Call) number() int64 {
	if d := c.sentVia.Load(); d != nil {
		return d.id
	}
	return 0
}

// SentAt returns the time at which the call was last sent; zero = never.
func (c *Call) SentAt() time.Time {
	if d := c.sentVia.Load(); d != nil {
		return d.at
	}
	return time.Time{}
}

// Reconnects returns the number of times that the call was sent again after its first sending, or
// that the transport has reported by [Peer.NoteReconnect].
func (c *Call) Reconnects() int {
	if d := c.sentVia.Load(); d != nil {
		return int(d.reconnects.Load())
	}
	return 0
}

// ErrTimeout is the error of a call that got no response within its Timeout.
var ErrTimeout = errors.New("no answer in time")

// ErrCancelled is the error of a call that its caller cancelled, or the remote side: see
// Call.RemoteCancels.
var ErrCancelled = errors.New("cancelled")

// Cancel cancels the call, which then cannot be sent, or sent again. If the call is in flight, the
// remote side is notified, and the call completes with ErrCancelled. params are the params of the
// notification, with the requestId replaced; nil = default params.
func (c *Call) Cancel(params []byte) {
	c.cancelled.Store(true)
	if d := c.sentVia.Load(); d != nil {
		d.peer.abandon(d.id, ErrCancelled, params)
	}
}

// IsCancelled reports whether the call was cancelled.
func (c *Call) IsCancelled() bool { return c.cancelled.Load() }

// PauseTimeout stops the timeout, for example while a user is asked for input on behalf of the
// call. Each PauseTimeout must be followed by one ResumeTimeout. Both methods may be called at any
// time, including before Send and after the end of the call.
func (c *Call) PauseTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses++
	c.deadline = time.Time{}
}

// ResumeTimeout undoes one PauseTimeout. After the last pause the full timeout starts again.
func (c *Call) ResumeTimeout() {
	c.mu.Lock()
	c.pauses--
	d := c.sentVia.Load()
	if c.pauses > 0 || c.Timeout <= 0 || d == nil {
		c.mu.Unlock()
		return
	}
	deadline := time.Now().Add(c.Timeout)
	c.deadline = deadline
	c.mu.Unlock()
	d.peer.calls.expireAt(deadline)
}

// SetTimeout changes Timeout, for the next send. It may be called while other goroutines pause and
// resume the timeout.
func (c *Call) SetTimeout(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Timeout = timeout
}

// startTimeout sets and returns the deadline of a call that is sent now; zero = none.
func (c *Call) startTimeout(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = time.Time{} // it may be that of an earlier send
	if c.Timeout > 0 && c.pauses == 0 {
		c.deadline = now.Add(c.Timeout)
	}
	return c.deadline
}

// restartTimeout starts the full timeout again, unless it is paused or has expired. The timer of
// the callTable is not changed: expire finds the new deadline.
func (c *Call) restartTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.deadline.IsZero() {
		c.deadline = time.Now().Add(c.Timeout)
	}
}

// cancelRelatedTo returns the request on whose stream the cancellation of c is sent: the request of
// the remote side that c belongs to, or else c itself, for transports in which this side creates
// the streams.
func (c *Call) cancelRelatedTo() wire.ID {
	if c.RelatedTo != "" {
		return c.RelatedTo
	}
	return c.ID()
}

// BadResponseError is the error of a call whose response arrived but is not valid.
type BadResponseError struct{ Err error }

func (b *BadResponseError) Error() string { return "its answer is unusable: " + b.Err.Error() }
func (b *BadResponseError) Unwrap() error { return b.Err }

// A ResponseChan is the ResponseHandler of a caller that waits for the response. It needs a
// capacity of 1, so that OnResponse, which is called once, does not block.
type ResponseChan chan Response

// OnProgress implements ResponseHandler.
func (w ResponseChan) OnProgress(wire.Message) {}

// OnResponse implements ResponseHandler.
func (w ResponseChan) OnResponse(m wire.Message, err error) { w <- Response{m, err} }
