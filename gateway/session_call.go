package gateway

import (
	"context"
	"strconv"
	"sync/atomic"

	"mcpgateway/catalog"
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A sessionCall is a call of a session client.
//
//	fromLegacy ─ recordResponse (session_task_calls.go) ─ forward
//	fromModern ─ toClientResponse ─ forward
//	   └ input_required or a task: roundTrips (round_trips.go), taskPoller (polled_task.go)
type sessionCall struct {
	clientCall
	s *Session

	asksForTask  bool        // had a reserved slot for a task when it was sent
	taskReserved bool        // the slot is unused; for the goroutine that handles the response
	sawProgress  atomic.Bool // the backend has reported progress

	older, newer *sessionCall // neighbours in the session's inFlightCalls
}

// startSessionCall handles a request of a session client that a backend serves.
func startSessionCall(s *Session, r *peer.Request, spec *methodSpec) {
	c := &sessionCall{s: s}
	c.kind = c
	c.init(&s.clientConn, r, spec, s.lifecycle.handshake().Name, s.id, &s.links)
	if c.begin() {
		c.resolve()
	}
}

func (c *sessionCall) lastListed(kind catalog.Kind) *catalog.Snapshot {
	return c.s.lists.listed(kind)
}

// findTask returns the route of a task id of the session. The ids of other sessions' tasks are
// unknown, and so are those of tasks at a backend that the client may no longer use.
func (c *sessionCall) findTask(id string) (catalog.Route, bool) {
	at, ok := c.s.tasks.toBackend(id)
	if !ok || !c.s.uses(at.backend) {
		return catalog.Route{}, false
	}
	route := catalog.Route{Backend: at.backend, Original: at.id, OriginalJSON: wire.Quote(at.id)}
	return route, true
}

func (c *sessionCall) notFoundError() *wire.Error { return c.spec.notFound(c.Name) }

func (c *sessionCall) traced() TracedClient { return c.s.traced() }

func (c *sessionCall) prepare() bool {
	if c.spec == taskSpec {
		task := scopedID{c.Route.Backend, c.Route.Original}
		if p := c.s.tasks.polled(task); p != nil {
			c.s.calls.add(c)
			c.goLocked(func(ctx context.Context) { (&taskPoller{c: c, p: p}).serve(ctx) })
			return false
		}
	}
	if err := c.reserveTask(); err != nil {
		c.reject(err)
		return false
	}
	c.backendCall = c.newBackendCall(c.request(c.backendMessage()), c)
	if c.Method == protocol.MethodTasksResult {
		c.backendCall.PauseTimeout() // the backend responds when the task has ended
	}
	c.s.calls.add(c)
	return true
}

// backendMessage returns the message for the backend, with the backend's task ids. The name is
// still the client's.
func (c *sessionCall) backendMessage() wire.Message {
	return c.s.tasks.toBackendIDs(c.Route.Backend, c.r.Message)
}

func (c *sessionCall) request(m wire.Message) contract.BackendRequest {
	r := c.backendRequest(m)
	r.AllowTask = c.spec == toolsCallSpec
	return r
}

// OnProgress implements contract.CallHandler.
func (c *sessionCall) OnProgress(m wire.Message) {
	c.sawProgress.Store(true)
	if !c.conn.isBacklogged(c.Route.Backend) {
		c.history.progress.Add(1)
		c.r.Notify(c.s.tasks.toClientIDs(c.Route.Backend, m))
	}
}

func (c *sessionCall) fromLegacy(m wire.Message) error {
	if err := c.checkTaskResult(m); err != nil {
		return err
	}
	mayBeTask := c.taskReserved
	if !c.forward(c.recordResponse(m)) && mayBeTask {
		c.cancelTask(stringAt(m, "result", "task", "taskId"), false)
	}
	return nil
}

// fromModern forwards a final response. For input_required or a task it keeps the call open, and
// starts the goroutine that gets the final response.
func (c *sessionCall) fromModern(m wire.Message) error {
	kind, _, err := c.readResult(m)
	switch {
	case err != nil:
		return err
	case kind == protocol.ResultInputRequired, kind == protocol.ResultTask:
		c.startRoundTrips(m)
	default:
		c.forward(c.toClientResponse(m))
	}
	return nil
}

func (c *sessionCall) failed(err error) {
	c.unreserveTask()
	c.failWith(err)
}

// forward ends the call with a backend's response, adapted to the client's revision. It returns
// false if the client's request has already ended.
func (c *sessionCall) forward(m wire.Message) bool {
	if failure := m.Part(wire.PartError); failure != nil {
		marked, err := protocol.LabelElicitations(failure, mrtr.Label(c.Route.Backend))
		if err != nil {
			c.failWith(&peer.BadResponseError{Err: err})
			return true
		}
		if len(marked) > len(failure) {
			m = m.Splice(wire.Edit{Part: wire.PartError, Text: marked})
		}
	}
	m = protocol.AdaptResponse(m, c.Method, c.s.lifecycle.handshake().Revision)
	c.recordLinks(m)
	var early []wire.Message
	if c.asksForTask {
		early = c.s.calls.takeEarlyStatuses(c)
	}
	if !c.r.Forward(m) {
		return false
	}
	c.end(outcomeOf(m))
	for _, status := range early {
		c.g.forwardTaskStatus(c.Route.Backend,
			contract.Attribution{Session: c.s.id, StreamEnded: true}, status)
	}
	return true
}

// toLegacy converts a modern backend's response for a session client.
func (c *sessionCall) toLegacy(m wire.Message) wire.Message {
	failure := m.Part(wire.PartError)
	if failure == nil {
		return protocol.ToLegacy(m)
	}
	uri := ""
	if c.Method == protocol.MethodResourcesRead {
		uri = c.Name
	}
	switch e := wire.ReadError(failure); e.Code {
	case protocol.CodeMissingCapability:
		return c.inputDeclined(e)
	case protocol.CodeHeaderMismatch, protocol.CodeUnsupportedVersion:
		// the error concerns only the gateway and the backend
		m, _ = m.Set(strconv.AppendInt(nil, wire.CodeInternalError, 10), "error", "code")
	}
	return protocol.ErrorToLegacy(m, uri)
}

func (c *sessionCall) cancelSent(params []byte) {
	if c.backendCall != nil {
		c.backendCall.Cancel(params)
	}
}

func (c *sessionCall) ended() { c.s.calls.remove(c) }

// pauseTimeout and resumeTimeout pause the timeout of the call at the backend. A request about a
// polledTask has no call of its own.
func (c *sessionCall) pauseTimeout() {
	if c.backendCall != nil {
		c.backendCall.PauseTimeout()
	}
}

func (c *sessionCall) resumeTimeout() {
	if c.backendCall != nil {
		c.backendCall.ResumeTimeout()
	}
}

// relatedID returns the client's id of the call, "" for a nil call.
func (c *sessionCall) relatedID() wire.ID {
	if c == nil {
		return ""
	}
	return c.ID
}
