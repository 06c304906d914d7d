// Package transport defines [Conn], a connection that transfers whole JSON-RPC messages, and
// implements it over the stdin and stdout of this process and in memory. It also contains the parts
// that several transports share: lines of text, write queues, and limits of received bytes. Package
// child connects to child processes; package httpclient connects to HTTP servers.
//
// A Conn reads and writes messages, and keeps no protocol state beyond the needs of its transport.
// Package peer matches responses to requests for all transports.
//
// No transport waits for a remote side that does not read: see [Writer].
package transport

import (
	"bytes"
	"errors"
	"fmt"

	"mcpgateway/internal/wire"
)

// A Conn is one stream of messages in each direction. One goroutine may read while any number of
// goroutines write. Close may be called at any time, by any goroutine.
type Conn interface {
	// Read blocks until a message arrives. An error of type [*MalformedError] or [*CallLostError]
	// concerns one message or call; the connection stays open and Read may be called again. Any
	// other error ends the connection: io.EOF if the remote side closed it in an orderly way,
	// [ErrClosed] after Close, or the reason why no further message can be delivered.
	//
	// relatedTo is the id of the outbound request to which m belongs, on transports that have a
	// stream for each request; "" = unknown.
	Read() (m wire.Message, relatedTo wire.ID, err error)

	Writer
}

// A Writer is the writing half of a [Conn]. A connection that pushes incoming messages to its user
// consists only of a Writer.
type Writer interface {
	// Write sends m and returns at once. The Conn queues the bytes that the remote side does not
	// read immediately, up to a limit. When the limit is reached, Write fails with [ErrFull]. After
	// the end of the connection it fails with an error that wraps [ErrClosed], or returns nil
	// because Read reports the end. A transport may reject messages for further reasons. relatedTo
	// is the id of the request to which m belongs (for example because m cancels it or responds to
	// it), for transports that have a stream for each request; "" = none. A nil error does not mean
	// that m has arrived.
	Write(m wire.Message, relatedTo wire.ID) error

	// Close ends the connection as the transport defines, unblocks Read, and waits until the
	// goroutines and processes that the Conn has started have ended. Calling Close again does
	// nothing.
	Close() error
}

// ErrClosed is returned by Read after Close. Errors of Write after the end of the connection wrap
// it.
var ErrClosed = errors.New("connection closed")

// ErrFull is returned by Write when the bytes that the remote side has not read have reached the
// limit. No part of the message was sent.
var ErrFull = errors.New("the remote side does not read: too many bytes are queued for it")

// A MalformedError is returned by Read for input that is not a valid message. Read has skipped the
// input.
type MalformedError struct {
	Text []byte  // beginning of the input; it may contain secrets
	ID   wire.ID // id found in the input; "" = none
	// LooksLikeResponse is true if the input seems to be a response to the request with this ID, as
	// opposed to, for example, a log record with a member "id".
	LooksLikeResponse bool
	Err               *wire.Error  // defect of the input, suitable for an error response
	Message           wire.Message // parsed parts of the input; the Kind is Invalid
}

func (e *MalformedError) Error() string { return e.Err.Message }

// A CallLostError is the error of a request that will get no response. Read returns it when a
// request is lost and the connection stays open. Package peer also creates it for the calls in
// flight when a connection ends; packages backends and gateway create it for calls that were not
// sent or whose response is lost.
type CallLostError struct {
	ID         wire.ID // id of the lost request; "" = not sent or not known
	Err        error   // reason
	MayHaveRun bool    // whether the remote side may have acted upon the request
}

func (e *CallLostError) Error() string { return e.Err.Error() }
func (e *CallLostError) Unwrap() error { return e.Err }

// maxMalformed bounds MalformedError.Text, in bytes. Code that shows the text must mask secrets
// before it truncates the text.
const maxMalformed = 4 << 10

// NewMalformedError returns the MalformedError of a text for which wire.Parse has returned m and
// err.
func NewMalformedError(text []byte, m wire.Message, err error) *MalformedError {
	var reason *wire.Error
	if !errors.As(err, &reason) {
		reason = wire.Errorf(wire.CodeParseError, "%v", err)
	}
	e := &MalformedError{
		Text: text[:min(len(text), maxMalformed)],
		ID:   m.ID(), Err: reason, Message: m,
	}
	if reason.Code == wire.CodeParseError {
		// Invalid JSON, such as the NaN that some servers write, may still answer a call.
		var skim wire.Skimmer
		skim.Write(text)
		e.ID = skim.ID()
	}
	has := func(key string) bool { return bytes.Contains(text, []byte(key)) }
	e.LooksLikeResponse = e.ID != "" && m.Part(wire.PartMethod) == nil &&
		(has(`"jsonrpc"`) || has(`"result"`) || has(`"error"`)) &&
		(reason.Code != wire.CodeParseError || !has(`"method"`))
	return e
}

// Malformed returns the MalformedError for the skipped line or event.
func (o *OversizedError) Malformed(limit int) *MalformedError {
	err := messageTooLong(limit)
	if o.Reason != nil {
		err = wire.Errorf(wire.CodeInternalError, "%v", o.Reason)
	}
	return &MalformedError{Text: o.Head, ID: o.ID, LooksLikeResponse: true, Err: err}
}

// LostReason returns the error of a request whose response was skipped.
func (o *OversizedError) LostReason(limit int) error {
	if o.Reason != nil {
		return fmt.Errorf("the answer cannot be read: %w", o.Reason)
	}
	return ResponseTooLong(limit)
}

// ResponseTooLong returns the error of a request whose response has more than limit bytes.
func ResponseTooLong(limit int) error {
	return fmt.Errorf("the answer is longer than limits.message (%d bytes)", limit)
}

func messageTooLong(limit int) *wire.Error {
	return wire.Errorf(wire.CodeInvalidRequest,
		"Invalid request: the message is longer than limits.message (%d bytes)", limit)
}

// An UnreadableError is returned for a message that cannot be read, because the content coding of
// the body is not supported, the decompressed body is too long in relation to the compressed body,
// or a ReceiveQuota is exhausted.
type UnreadableError struct{ Reason string }

func (e *UnreadableError) Error() string { return e.Reason }
