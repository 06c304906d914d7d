package gateway

import (
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// question is something that a backend asks of a client, in flight: the row that
// brings the answer home. Two may end it, the backend, which takes back its
// request, and the client; the one that takes the request from the backend's
// table does.
//
// [call] is the same in the other direction.
type question struct {
	pending peer.Call
	s       *Session
	r       *peer.Request
	backend string
	task    bool        // the client may answer with a task of its own
	limit   *time.Timer // of a question that belongs to no call; guarded by the session's mu

	mu        sync.Mutex
	sent      bool
	cancelled bool
}

// HandleRequest hands on what a backend asks of the client that a session is with, ""
// if it is not certain which. It does not wait. What comes on the stream of a call that is
// over is of that call: nobody is asked it, unless it names the task that it is about.
func (g *Gateway) HandleRequest(session, backend string, r *peer.Request) {
	if r.Origin().CallEnded && relatedTask(r.Message) == "" && taskID(r.Message) == "" {
		decline(r, errCallOver)
		return
	}
	if guest := g.guests.named(session); guest != nil {
		guest.asked(backend, r)
		return
	}
	s := g.session(session)
	if s == nil && session == "" {
		if j := g.jobs.asksOf(backend, r.Message); j != nil {
			j.held.ask(r)
			return
		}
		s = g.named(backend, r.Message)
	}
	if s == nil {
		r.Fail(wire.Errorf(wire.CodeMethodNotFound,
			"Method not found: %s: no client is certain to be the one that is asked", brief(r.Method())))
		return
	}
	s.ask(backend, r)
}

// ask puts a question to the client, once it is ready for any.
func (s *Session) ask(backend string, r *peer.Request) {
	if err := s.mayAsk(backend, r.Message); err != nil {
		r.Fail(err)
		return
	}
	if err := s.mayBePut(backend); err != nil {
		r.Fail(err)
		return
	}
	q := &question{s: s, r: r, backend: backend, task: asksForTask(r.Message)}
	if !r.OnCancel(q) {
		q.over()
		return
	}
	s.mu.Lock()
	early := s.state == fresh || s.state == greeted // its initialized is on its way
	if early {
		s.hushLocked(q)
	}
	s.mu.Unlock()
	if !early {
		q.send()
	}
}

// mayAsk says why the client is not asked something, nil if it is.
func (s *Session) mayAsk(backend string, m wire.Message) *wire.Error {
	ok := false
	switch mcp.MCPMethod(m.Method()) {
	case mcp.MethodTasksGet, mcp.MethodTasksResult:
		ok = s.can("tasks")
	case mcp.MethodTasksList:
		ok = s.can("tasks", "list")
	case mcp.MethodTasksCancel:
		ok = s.can("tasks", "cancel")
	default:
		s.mu.Lock()
		can := s.caller.can
		s.mu.Unlock()
		return mayAsk(can, m)
	}
	if !ok {
		return notDeclared(m)
	}
	if id := taskID(m); id != "" && !s.hosted.has(backend, id) {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown task: %s", brief(id))
	}
	return nil
}

// send puts the question to the client, on the stream of the call that is the
// cause of it, whose time does not run until it is answered.
func (q *question) send() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cancelled {
		return
	}
	if !q.s.isReady() {
		q.drop(wire.Errorf(wire.CodeInternalError, "The client's session is not initialized, or is ending"))
		return
	}
	q.sent = true
	q.pending.Handler, q.pending.Token, q.pending.RelatedTo = q, q.r.Token(), q.s.put(q).on()
	// Under the lock, as in call.send.
	q.s.peer.Send(q.s.exposeTasks(q.backend, q.signed()), &q.pending)
}

// drop ends a question that was not put to the client.
func (q *question) drop(err *wire.Error) {
	if q.r.Fail(err) {
		q.over()
	}
}

// signed returns the question as the client gets it. Of an elicitation it is told
// whose it is, for its answer goes there: "Clients MUST provide UI that makes it
// clear which server is requesting information" (elicitation, security).
func (q *question) signed() wire.Message {
	m := tagged(q.backend, q.r.Message)
	if m.Method() == string(mcp.MethodElicitationCreate) && elicitationMode(m.Part(wire.PartParams)) == "url" {
		q.s.elicited.add(q.backend, stringAt(m, "params", "elicitationId"))
	}
	return m
}

// tagged returns what a backend asks with its name in front, if it is a person who is
// asked.
func tagged(backend string, m wire.Message) wire.Message {
	if m.Method() != string(mcp.MethodElicitationCreate) {
		return m
	}
	if text, _ := wire.Lookup(m.Raw(), "params", "message"); len(text) > 0 && text[0] == '"' {
		m, _ = m.Set(prefixed(mark(backend), text), "params", "message")
	}
	return m
}

// mark is the text in front of what a backend asks a person.
func mark(backend string) string { return "[" + backend + "] " }

// prefixed puts text in front of a string literal, which is not read.
func prefixed(text string, literal []byte) []byte {
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
func (q *question) OnProgress(m wire.Message) { q.r.Notify(q.s.ownTasks(q.backend, m)) }

// Done implements peer.ResponseHandler: the answer goes home as it is, or the reason why
// there is none.
func (q *question) OnResponse(m wire.Message, err error) {
	q.over() // before the answer: who hears it may ask again
	if err != nil {
		q.r.Fail(wire.Errorf(wire.CodeInternalError, "The client is gone, or its answer could not be read"))
		return
	}
	q.r.Forward(q.learn(m))
}

// Cancelled implements peer.CancelHandler: the backend has taken the question back, or is
// gone.
func (q *question) HandleCancel(params []byte) {
	q.mu.Lock()
	q.cancelled = true
	sent := q.sent
	q.mu.Unlock()
	if sent {
		q.pending.Cancel(params)
	} else {
		q.over()
	}
}
