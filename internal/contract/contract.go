// Package contract contains the types with which packages gateway and backends exchange calls: the
// two packages do not import each other. It has no behaviour of its own.
//
// The gateway creates a [BackendCall] from a [BackendRequest] and a [CallHandler], and then sends
// it. Creating and sending are two steps, because the CallHandler may get the response before Send
// returns, and because a request of the backend during Send pauses the timeout of the call; the
// gateway must know the BackendCall by then.
package contract

import (
	"errors"
	"fmt"
	"time"

	"mcpgateway/internal/wire"
)

// A BackendRequest is a client's request for a backend. It is immutable.
type BackendRequest struct {
	// Message is the request, without the client metadata of the modern generation in _meta.
	// Package backends adds the metadata if the backend is modern.
	Message wire.Message
	// Session is the session on whose behalf the request is sent; "" = none. It determines the
	// connection and the turn in a queue.
	Session string
	// Entry is the backend's own name of the tool or prompt, which the filters are checked for; ""
	// = the name in Name or Message. The name or URI of a resource is always the one in Message.
	Entry string
	// Name is a JSON string that replaces params.name; nil = unchanged.
	Name []byte
	// ProgressToken is the token of the client, under which the CallHandler gets progress; "" = no
	// progress wanted.
	ProgressToken wire.ID
	// Builtin is true if the request calls an entry of the gateway itself, which is listed with the
	// entries of the backend. It is not sent to the backend.
	Builtin bool
	// AllowTask is true if a modern backend may respond with a task, whatever the client has
	// declared, because the sender handles the task.
	AllowTask bool
	// Continuation is true if the request continues a call after an input_required result of a
	// modern backend. A legacy backend would take the request for a new call, so the request fails
	// there with a *[wire.Error].
	Continuation bool
	// Consents are the consents that the client's user has given to this call; see [QuestionError].
	Consents Consents
	// ServerKey identifies the server that a Continuation is meant for; see [BackendCall]. At any
	// other server the request fails with a *[wire.Error]. "" = any server.
	ServerKey string
	// Span is the span of the request in the trace of the client's request; nil = not traced. It
	// belongs to this request alone.
	Span RequestSpan
}

// A RequestSpan is the part of a trace that one request to a backend takes. Its methods do not
// block.
type RequestSpan interface {
	// Begin begins the span of a request that is about to be sent. It returns the members of
	// params._meta that contain the trace context for the backend. If the request is sent again,
	// Begin is called again, and begins another span.
	Begin(TracedRequest) []wire.Member
	// End ends the span, after each Begin whose request was sent. Without a Begin it does nothing.
	// id is the id under which the request was sent, and r the response, or what replaces it.
	End(id wire.ID, r BackendResponse)
}

// A TracedRequest describes a request that is sent to a backend.
type TracedRequest struct {
	Backend  string // name of the backend
	Method   string
	Entry    string // see BackendRequest.Entry
	Revision string // of the protocol, as negotiated with the backend
	URL      string // of the backend; "" = it is not connected over HTTP
}

// A BackendResponse is the outcome of a BackendRequest.
type BackendResponse struct {
	// Message is the response, a result or an error, under the id of the [BackendCall]. It is zero
	// if Err is set.
	Message wire.Message
	// Err replaces the response: [ErrForbidden], a *[QuestionError], a *[NotApprovedError],
	// peer.ErrCancelled, a
	// *[TimeoutError], a *peer.BadResponseError, a *[wire.Error], or a *transport.CallLostError,
	// which reports whether the backend may have acted upon the request. It may wrap
	// [ErrQueueFull].
	Err error
	// Modern is true if the Message has the form of the modern generation.
	Modern bool
}

// A CallHandler receives the progress and the response of a BackendCall. Its methods must not
// block: they run on the goroutine that reads from the backend, on that of a timer, or on that of a
// caller of Send or Cancel. The caller holds none of its locks.
type CallHandler interface {
	// OnProgress is called with each progress notification, under the ProgressToken of the
	// BackendRequest. It is not called if there is no ProgressToken.
	OnProgress(wire.Message)
	// OnResponse is called exactly once, possibly before Send returns.
	OnResponse(BackendResponse)
}

// A BackendCall is a BackendRequest on its way to a backend. Its methods do not block and may be
// called concurrently.
type BackendCall interface {
	// Send sends the request, or queues it while the backend starts or has no free slot. It must be
	// called once. A request that cannot be sent ends with an error.
	Send()
	// Cancel cancels the call, wherever it is: in flight, in a queue, or not sent yet. The
	// CallHandler gets peer.ErrCancelled, unless the call has ended. A backend that has received
	// the request is notified. params are the params of the notification, with the requestId
	// replaced; nil = default params.
	Cancel(params []byte)
	// PauseTimeout stops the timeout, for example while a user is asked for input. Each
	// PauseTimeout must be followed by one ResumeTimeout. Both may be called at any time, including
	// before Send and after the end of the call.
	PauseTimeout()
	// ResumeTimeout undoes one PauseTimeout. After the last pause the full timeout starts again.
	ResumeTimeout()
	// ID returns the id under which the request was last sent; "" = never sent.
	ID() wire.ID
	// SentAt returns the time at which the request was last sent; zero = never.
	SentAt() time.Time
	// Reconnects returns the number of times that the request was sent again after its first
	// sending, or that the stream of its response was resumed.
	Reconnects() int
	// ServerKey identifies the server to which the request was last sent; "" = never sent.
	ServerKey() string
	// RelayProgress calls the function forward with the progress that arrives after the response,
	// until stop is called or the connection ends. It must be called from OnResponse. See
	// peer.Call.RelayProgress for its limits.
	RelayProgress(forward func(wire.Message)) (stop func())
}

// An Attribution tells what a message that a backend has initiated belongs to.
type Attribution struct {
	// Session is the session that the message is for; "" = not certain.
	Session string
	// Handler is the handler of the call on whose stream the message arrived; nil = no such call.
	// If package backends itself has made the call, it is a handler that the gateway does not know.
	Handler CallHandler
	// StreamEnded is true if the message arrived on the stream of a call that has ended: it belongs
	// to that call and to no other.
	StreamEnded bool
	// IsFor reports whether the message may be for clients of the principal with this key; nil =
	// for clients of any principal.
	IsFor func(principal string) bool
}

// ErrQueueFull is wrapped by the error of a call that got no slot, because the queue in front of
// the backend is full or the call's turn did not come in time. The call did not run.
var ErrQueueFull = errors.New("busy")

// ErrForbidden is the error of a call that was not sent because the configuration no longer permits
// it.
var ErrForbidden = errors.New("the configuration does not permit it")

// A NotApprovedError is the error of a call that was not sent because tools.pin of its backend is
// block, and the tool or its name is not approved. Its text says what to do.
type NotApprovedError struct{ Reason string }

func (e *NotApprovedError) Error() string { return e.Reason }

// A TimeoutError is the error of a call that got no response in time. The backend may have acted
// upon it.
type TimeoutError struct{ Limit time.Duration }

func (e *TimeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.Limit) }

// Consents is a set of consents of a client's user to one call.
type Consents uint8

const (
	// Confirmed is the consent to the call itself: its backend, tool and arguments (tools.confirm).
	Confirmed Consents = 1 << iota
	// LoggedIn is the consent to open the page of a login that the backend requires.
	LoggedIn
)

// A QuestionError is the error of a call that was not sent, because the client's user has to
// consent to something first. The call can be sent again, as a new BackendCall, with the consent in
// its BackendRequest. It is read-only.
type QuestionError struct {
	// Asks is the consent that is missing, a single one.
	Asks Consents
	// URL is the page that the user is asked to open (elicitation in URL mode), http or https; ""
	// = the question is a form.
	URL string
	// Text is the question of a page; that of a form follows from Asks.
	Text string
	// Err is the reason for which the user has to open the page; nil = unknown, or a form.
	Err error
	// Done is closed when the user has finished on the page, or when the page has expired: the call
	// is sent again after that. nil = the consent suffices. If a call with the consent gets the
	// error, the gateway does not ask again: it waits for Done if the user was asked to open the
	// page at URL, and ends the call otherwise. If there are too many pages, Done may stay open, so
	// the wait needs a timeout.
	Done <-chan struct{}
}

// Link returns the sentence for the client that names the page: "" = there is no page. No log or
// record may contain it, because whoever knows the URL of a page can use the page.
func (e *QuestionError) Link() string {
	if e.URL == "" {
		return ""
	}
	return "To permit it, open " + e.URL + " in a browser, then repeat the call."
}

func (e *QuestionError) Unwrap() error { return e.Err }

func (e *QuestionError) Error() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.URL != "":
		return "it requires that the user opens a page"
	}
	return "the configuration requires that the user confirms the call (tools.confirm)"
}
