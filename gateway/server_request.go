package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// serverRequest is something that a backend asks of a client, in flight: the row that
// brings the answer home. Two may end it, the backend, which takes back its
// request, and the client; the one that takes the request from the backend's
// table does.
//
// [clientCall] is the same in the other direction.
type serverRequest struct {
	toClient    peer.Call
	s           *Session
	r           *peer.Request
	backend     string
	taskAllowed bool        // the client may answer with a task of its own
	timer       *time.Timer // of a question that belongs to no call; guarded by the session's mu

	mu        sync.Mutex
	sent      bool
	cancelled bool
}

// HandleRequest hands on what a backend asks of the client that a session is with, ""
// if it is not certain which. It does not wait. What comes on the stream of a call that is
// over is of that call: nobody is asked it, unless it names the task that it is about.
func (g *Gateway) HandleRequest(session, backend string, r *peer.Request) {
	if r.Origin().CallEnded && relatedTask(r.Message) == "" && taskID(r.Message) == "" {
		decline(r, errCallEnded)
		return
	}
	if client := g.statelessClients.get(session); client != nil {
		client.handleRequest(backend, r)
		return
	}
	s := g.session(session)
	if s == nil && session == "" {
		if st := g.statelessTasks.soleTaskFor(backend, r.Message); st != nil {
			st.bridge.addInputRequest(r)
			return
		}
		s = g.sessionForTask(backend, r.Message)
	}
	if s == nil {
		r.Fail(wire.Errorf(wire.CodeMethodNotFound,
			"Method not found: %s: no client is certain to be the one that is asked", truncate(r.Method())))
		return
	}
	s.forwardRequest(backend, r)
}

// forwardRequest puts a question to the client, once it is ready for any.
func (s *Session) forwardRequest(backend string, r *peer.Request) {
	if err := s.checkMayAsk(backend, r.Message); err != nil {
		r.Fail(err)
		return
	}
	if err := s.acquireSlot(backend); err != nil {
		r.Fail(err)
		return
	}
	sr := &serverRequest{s: s, r: r, backend: backend, taskAllowed: asksForTask(r.Message)}
	if !r.OnCancel(sr) {
		sr.release()
		return
	}
	s.mu.Lock()
	early := s.state == uninitialized || s.state == awaitingInitialized // its initialized is on its way
	if early {
		s.queueServerRequestLocked(sr)
	}
	s.mu.Unlock()
	if !early {
		sr.send()
	}
}

// checkDeclared says why the client is not asked something, nil if it is.
func (s *Session) checkMayAsk(backend string, m wire.Message) *wire.Error {
	ok := false
	switch m.Method() {
	case protocol.MethodTasksGet, protocol.MethodTasksResult:
		ok = s.clientDeclares("tasks")
	case protocol.MethodTasksList:
		ok = s.clientDeclares("tasks", "list")
	case protocol.MethodTasksCancel:
		ok = s.clientDeclares("tasks", "cancel")
	default:
		s.mu.Lock()
		can := s.negotiated.clientCaps
		s.mu.Unlock()
		return checkDeclared(can, m)
	}
	if !ok {
		return errNotDeclared(m)
	}
	if id := taskID(m); id != "" && !s.clientTasks.has(backend, id) {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown task: %s", truncate(id))
	}
	return nil
}

// send puts the question to the client, on the stream of the call that is the
// cause of it, whose time does not run until it is answered.
func (sr *serverRequest) send() {
	sr.mu.Lock()
	defer sr.mu.Unlock()
	if sr.cancelled {
		return
	}
	if !sr.s.isReady() {
		sr.rejectUnsent(wire.Errorf(wire.CodeInternalError, "The client's session is not initialized, or is ending"))
		return
	}
	sr.sent = true
	sr.toClient.Handler, sr.toClient.Token, sr.toClient.RelatedTo = sr, sr.r.Token(), sr.s.trackServerRequest(sr).relatedID()
	// Under the lock, as in call.send.
	sr.s.peer.Send(sr.s.toClientTaskIDs(sr.backend, sr.labelled()), &sr.toClient)
}

// rejectUnsent ends a question that was not put to the client.
func (sr *serverRequest) rejectUnsent(err *wire.Error) {
	if sr.r.Fail(err) {
		sr.release()
	}
}

// labelled returns the question as the client gets it. Of an elicitation it is told
// whose it is, for its answer goes there: "Clients MUST provide UI that makes it
// clear which server is requesting information" (elicitation, security).
func (sr *serverRequest) labelled() wire.Message {
	m := withBackendLabel(sr.backend, sr.r.Message)
	if m.Method() == protocol.MethodElicitationCreate && elicitationMode(m.Part(wire.PartParams)) == "url" {
		sr.s.urlElicitations.add(sr.backend, stringAt(m, "params", "elicitationId"))
	}
	return m
}

// withBackendLabel returns what a backend asks with its name in front, if it is a person who is
// asked.
func withBackendLabel(backend string, m wire.Message) wire.Message {
	if m.Method() != protocol.MethodElicitationCreate {
		return m
	}
	if text, _ := wire.Lookup(m.Raw(), "params", "message"); len(text) > 0 && text[0] == '"' {
		m, _ = m.Set(prependJSONString(backendLabel(backend), text), "params", "message")
	}
	return m
}

// backendLabel is the text in front of what a backend asks a person.
func backendLabel(backend string) string { return "[" + backend + "] " }

// prependJSONString puts text in front of a string literal, which is not read.
func prependJSONString(text string, literal []byte) []byte {
	front := wire.Quote(text)
	return append(front[:len(front)-1:len(front)-1], literal[1:]...)
}

// stringAt returns the string to which a path leads in a message, "" if there is
// none.
func stringAt(m wire.Message, path ...string) string {
	value, _ := wire.Lookup(m.Raw(), path...)
	return wire.Unquote(value)
}

// Progressed implements peer.ResponseHandler.
func (sr *serverRequest) OnProgress(m wire.Message) {
	sr.r.Notify(sr.s.toBackendTaskIDs(sr.backend, m))
}

// Done implements peer.ResponseHandler: the answer goes home as it is, or the reason why
// there is none.
func (sr *serverRequest) OnResponse(m wire.Message, err error) {
	sr.release() // before the answer: who hears it may ask again
	if err != nil {
		sr.r.Fail(wire.Errorf(wire.CodeInternalError, "The client is gone, or its answer could not be read"))
		return
	}
	sr.r.Forward(sr.recordResponse(m))
}

// Cancelled implements peer.CancelHandler: the backend has taken the question back, or is
// gone.
func (sr *serverRequest) HandleCancel(params []byte) {
	sr.mu.Lock()
	sr.cancelled = true
	sent := sr.sent
	sr.mu.Unlock()
	if sent {
		sr.toClient.Cancel(params)
	} else {
		sr.release()
	}
}
