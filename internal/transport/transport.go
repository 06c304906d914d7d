// Package transport moves whole messages: over this process's stdin and stdout,
// over those of a child process, over streamable HTTP (with sessions, as it was
// until 2025-11-25, or without, as it is since 2026-07-28) or the HTTP+SSE that was
// before it, or through memory.
//
// A [Conn] reads and writes messages and nothing more. It does not match
// answers to questions, knows no session and keeps no state of the protocol
// but what the transport itself needs: package peer does the rest, once, for
// all of them.
//
// It refuses to wait for a far side that does not read: see [Conn.Write].
package transport

import (
	"bytes"
	"errors"
	"fmt"

	"mcpgateway/internal/wire"
)

// A Conn is one stream of messages in each direction. One goroutine may read
// while any number write; Close may be called at any time, and by anyone.
type Conn interface {
	// Read blocks until a message arrives. An error of type [*MalformedError] or [*CallLostError]
	// concerns what it names; the conversation goes on and Read may be called
	// again. Every other error ends it: io.EOF if the far side closed it in an
	// orderly way, [ErrClosed] after Close, or if nothing can be delivered any more.
	//
	// About is the id of the request of ours that m belongs to, on transports that
	// have a stream for each; "" if that is not known.
	Read() (m wire.Message, about wire.ID, err error)

	Writer
}

// A Writer is the half of a [Conn] that is written to: all there is of one where what
// arrives is handed over, and not read.
type Writer interface {
	// Write sends m and returns at once: what the far side does not take right
	// away waits in the Conn, up to a bound, beyond which Write fails with
	// [ErrFull]. Once the conversation is over it fails with [ErrClosed], which
	// may wrap the reason. About names the request that m belongs to, for transports that
	// have a stream for each: the one m cancels or answers; "" if there is none.
	// That Write returned nil does not mean that m has arrived.
	Write(m wire.Message, about wire.ID) error

	// Close ends the conversation in the way that the transport has for it,
	// waits until everything the Conn started is gone, and unblocks Read, if there is one.
	// Calling it again does nothing.
	Close() error
}

// ErrClosed is returned by a Conn that was closed from this side.
var ErrClosed = errors.New("connection closed")

// ErrFull is returned by Write when the far side has left so much unread that
// the bound for it is reached. The message was not sent, not even in part.
var ErrFull = errors.New("the other side does not read: too much is waiting for it")

// MalformedError is what Read returns for a piece of input that is no message. It was
// skipped.
type MalformedError struct {
	Text []byte  // how it begins
	ID   wire.ID // the id that could be read in it, if any
	// LooksLikeResponse says that it seems to be meant as the answer to the request ID, and
	// not, say, a line of a log that has an id, too.
	LooksLikeResponse bool
	Err               *wire.Error // what is wrong with it, fit to be sent back
	// Message is what could be read of it, of no kind.
	Message wire.Message
}

func (n *MalformedError) Error() string { return n.Err.Message }

// CallLostError is what Read returns when it is certain that a request written before
// will get no answer, though the conversation goes on.
type CallLostError struct {
	ID  wire.ID // the request's
	Err error
	// MayHaveRun says that the far side may have acted upon the request.
	MayHaveRun bool
}

func (l *CallLostError) Error() string { return l.Err.Error() }
func (l *CallLostError) Unwrap() error { return l.Err }

// maxMalformed is how much of a piece of noise is kept, in bytes. Whoever shows it
// has to take the secrets out first, and to cut it then.
const maxMalformed = 4 << 10

// NewMalformedError returns the MalformedError that text is, of which wire.Parse has made m and
// err.
func NewMalformedError(text []byte, m wire.Message, err error) *MalformedError {
	var reason *wire.Error
	if !errors.As(err, &reason) {
		reason = wire.Errorf(wire.CodeParseError, "%v", err)
	}
	n := &MalformedError{Text: text[:min(len(text), maxMalformed)], ID: m.ID(), Err: reason, Message: m}
	if reason.Code == wire.CodeParseError {
		// No JSON, such as the NaN that some write; yet a call may wait for it.
		var skim wire.Skimmer
		skim.Write(text)
		n.ID = skim.ID()
	}
	has := func(key string) bool { return bytes.Contains(text, []byte(key)) }
	n.LooksLikeResponse = n.ID != "" && m.Part(wire.PartMethod) == nil && (has(`"jsonrpc"`) || has(`"result"`) || has(`"error"`)) &&
		(reason.Code != wire.CodeParseError || !has(`"method"`))
	return n
}

// Malformed returns the MalformedError that an overlong message is.
func (o *OversizedError) Malformed(limit int) *MalformedError {
	err := messageTooLong(limit)
	if o.Reason != nil {
		err = wire.Errorf(wire.CodeInternalError, "%v", o.Reason)
	}
	return &MalformedError{Text: o.Head, ID: o.ID, LooksLikeResponse: true, Err: err}
}

// LostReason returns why a request has no answer whose answer is an overlong message.
func (o *OversizedError) LostReason(limit int) error {
	if o.Reason != nil {
		return fmt.Errorf("the answer cannot be read: %w", o.Reason)
	}
	return ResponseTooLong(limit)
}

// ResponseTooLong returns the error of a request whose answer has more than limit bytes.
func ResponseTooLong(limit int) error {
	return fmt.Errorf("the answer is longer than limits.message, %d bytes", limit)
}

func messageTooLong(limit int) *wire.Error {
	return wire.Errorf(wire.CodeInvalidRequest, "Invalid request: the message is longer than limits.message, %d bytes", limit)
}

// An UnreadableError is why a body or an event is not read: its coding, or want of room.
type UnreadableError struct{ Reason string }

func (u *UnreadableError) Error() string { return u.Reason }
