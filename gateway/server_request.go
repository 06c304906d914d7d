package gateway

import (
	"strings"
	"sync"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A serverRequest is a backend's request to a session client, in flight. A response of the client
// or a cancellation by the backend ends the request. If they are concurrent, only the first one
// removes the request from the backend's peer.
//
// [clientCall] is the counterpart in the other direction.
type serverRequest struct {
	toClient    peer.Call
	s           *Session
	r           *peer.Request
	backend     string
	from        contract.Attribution
	taskAllowed bool // the client may respond with a task
	// timeout of a request that belongs to no call; guarded by callTracker.mu
	timer *time.Timer

	mu    sync.Mutex
	state serverRequestState
}

// A serverRequestState is the state of a serverRequest that has not ended.
type serverRequestState uint8

const (
	unsent    serverRequestState = iota
	sent                         // to the client
	cancelled                    // by the backend, before it was sent
)

// forwardRequest sends a backend's request to the client when the session is initialized. It
// rejects a request that the client must not receive, and each request at a limit of
// callTracker.reserveRequest.
func forwardRequest(s *Session, backend string, from contract.Attribution, r *peer.Request) {
	sr := &serverRequest{s: s, r: r, backend: backend, from: from,
		taskAllowed: asksForTask(r.Message)}
	if err := sr.check(); err != nil {
		r.Fail(err)
		return
	}
	if err := s.calls.reserveRequest(backend, s.view()); err != nil {
		r.Fail(err)
		return
	}
	if !r.OnCancel(sr) {
		s.calls.untrack(sr)
		return
	}
	if !s.lifecycle.queueEarly(sr, s.rejectQueued) {
		sr.send()
		return
	}
	sr.mu.Lock()
	isCancelled := sr.state == cancelled
	sr.mu.Unlock()
	if isCancelled { // perhaps before it was queued
		s.lifecycle.withdrawEarly(sr)
	}
}

// check returns an error if the client must not receive the request.
func (sr *serverRequest) check() *wire.Error {
	m, client := sr.r.Message, sr.s.lifecycle.handshake()
	ok := false
	switch m.Method() {
	case protocol.MethodTasksGet, protocol.MethodTasksResult:
		ok = client.clientDeclares("tasks")
	case protocol.MethodTasksList:
		ok = client.clientDeclares("tasks", "list")
	case protocol.MethodTasksCancel:
		ok = client.clientDeclares("tasks", "cancel")
	default:
		return mrtr.CheckDeclared(client.clientCaps, m)
	}
	if !ok {
		return mrtr.NotDeclaredError(m)
	}
	if id := taskID(m); id != "" && !sr.s.clientTasks.has(sr.backend, id) {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown task: %s", truncate(id))
	}
	return nil
}

// send sends the request to the client, on the stream of the call to which the request belongs.
// The timeout of that call is paused until the response arrives. If the session is not ready, send
// rejects the request.
func (sr *serverRequest) send() {
	sr.mu.Lock()
	defer sr.mu.Unlock()
	if sr.state == cancelled {
		return
	}
	if !sr.s.isReady() {
		if sr.r.Fail(wire.Errorf(wire.CodeInternalError,
			"The client's session is not initialized, or is ending")) {
			sr.s.calls.untrack(sr)
		}
		return
	}
	sr.state = sent
	sr.toClient.Handler, sr.toClient.Token = sr, sr.r.Token()
	call := sr.s.calls.track(sr)
	if call != nil && !strings.HasPrefix(sr.r.Method(), "tasks/") {
		call.history.rounds.Add(1)
	}
	sr.toClient.RelatedTo = call.relatedID()
	// sr.mu stays locked during sending, like c.mu in clientCall.send.
	sr.s.peer.Send(sr.s.tasks.toClientIDs(sr.backend, sr.labelled()), &sr.toClient)
}

// labelled returns the request with the backend's label, because "Clients MUST provide UI that
// makes it clear which server is requesting information" (elicitation, security). It records the
// id of a URL elicitation.
func (sr *serverRequest) labelled() wire.Message {
	m := mrtr.WithLabel(sr.backend, sr.r.Message)
	if m.Method() == protocol.MethodElicitationCreate &&
		mrtr.ElicitationMode(m.Part(wire.PartParams)) == "url" {
		sr.s.urlElicitations.add(sr.backend, stringAt(m, "params", "elicitationId"))
	}
	return m
}

// stringAt returns the string at a path in a message, "" if there is none.
func stringAt(m wire.Message, path ...string) string {
	value, _ := wire.Lookup(m.Raw(), path...)
	return wire.Unquote(value)
}

// OnProgress implements peer.ResponseHandler.
func (sr *serverRequest) OnProgress(m wire.Message) {
	sr.r.Notify(sr.s.tasks.toBackendIDs(sr.backend, m))
}

// OnResponse implements peer.ResponseHandler: it forwards the response, or reports an error.
func (sr *serverRequest) OnResponse(m wire.Message, err error) {
	sr.s.calls.untrack(sr) // before the response: the backend may send its next request at once
	if err != nil {
		sr.r.Fail(wire.Errorf(wire.CodeInternalError,
			"The client has disconnected, or its response could not be read"))
		return
	}
	sr.r.Forward(sr.recordResponse(m))
}

// HandleCancel implements peer.CancelHandler: the backend has cancelled the request or
// disconnected.
func (sr *serverRequest) HandleCancel(params []byte) {
	sr.mu.Lock()
	wasSent := sr.state == sent
	if !wasSent {
		sr.state = cancelled
	}
	sr.mu.Unlock()
	if wasSent {
		sr.toClient.Cancel(params)
	} else {
		sr.s.lifecycle.withdrawEarly(sr)
		sr.s.calls.untrack(sr)
	}
}

// expire withdraws a request to which the client has not responded in time.
func (sr *serverRequest) expire() {
	sr.withdraw(wire.Errorf(wire.CodeInternalError, "The client has not answered within %v",
		inputTimeout))
}

// withdraw declines the backend's request and cancels the request to the client, if the backend's
// request is still open.
func (sr *serverRequest) withdraw(err *wire.Error) {
	if decline(sr.r, err) {
		sr.HandleCancel(nil)
	}
}
