package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A taskPoller polls a task at a modern backend on behalf of a session client's call: the call that
// has created the task, or a request about the task.
type taskPoller struct {
	c *sessionCall
	p *polledTask
}

// untilDone polls the task until it has ended and forwards its input requests to the client. It
// returns the response to the original call, or false if the call has already ended, possibly by an
// error of polling.
func (t *taskPoller) untilDone(ctx context.Context, task []byte) (wire.Message, bool) {
	c, p := t.c, t.p
	progress := progressSynthesizer{c: c, last: time.Now()}
	failures := 0
	for {
		if task != nil && !pause(ctx, pollInterval(task)<<failures) {
			return wire.Message{}, false
		}
		resp := t.send(ctx, protocol.MethodTasksGet, taskParams(p.id))
		switch {
		case ctx.Err() != nil:
			return wire.Message{}, false
		case resp.Err != nil && failures < maxPollFailures && isRepeatable(resp.Err):
			failures++
			if task == nil {
				task = []byte("{}")
			}
			continue
		case resp.Err != nil:
			c.failWith(startedError(resp.Err))
			return wire.Message{}, false
		case resp.Message.Part(wire.PartError) != nil && p.clientID == "":
			c.failWith(&transport.CallLostError{Err: fmt.Errorf("its task is gone: %s",
				wire.ReadError(resp.Message.Part(wire.PartError)).Message), MayHaveRun: true})
			return wire.Message{}, false
		case resp.Message.Part(wire.PartError) != nil:
			c.s.tasks.noteFailure(p.backend, p.id, protocol.MethodTasksGet,
				resp.Message.Part(wire.PartError))
			return c.toLegacy(resp.Message), true
		}
		failures, task = 0, resp.Message.Part(wire.PartResult)
		o, err := protocol.ReadTaskOutcome(task)
		if err != nil {
			c.failWith(&peer.BadResponseError{Err: err})
			return wire.Message{}, false
		}
		if _, final := p.last(); final {
			return p.cancelledError(), true
		}
		legacy := protocol.TaskToLegacy(task)
		if p.setStatus(legacy) && p.clientID != "" && !c.conn.isBacklogged(p.backend) {
			status, err := wire.ParseNotification(protocol.NotificationTasksStatus,
				protocol.SetTaskID(legacy, p.clientID))
			if err != nil {
				c.s.log().Warn("dropped a task status", "backend", p.backend, "err", err)
			} else {
				c.s.notify(status, "")
			}
		}
		c.s.tasks.noteStatus(p.backend, p.id, protocol.TaskStatus(task))
		switch {
		case o.Result != nil:
			return c.toLegacy(wire.NewResult("0", o.Result)), true
		case o.Error != nil:
			return c.toLegacy(errorResponse(o.Error)), true
		case protocol.IsTerminalStatus(protocol.TaskStatus(task)):
			return p.cancelledError(), true
		}
		progress.maybeReport(task)
		if response, ok := t.answerInputs(ctx, o.Inputs); !ok {
			return response, response.Kind() != wire.Invalid
		}
	}
}

// answerInputs sends the task's new input requests to the client and the client's responses to the
// backend. If ok is false, the call has ended or, if response is a valid message, must end with
// response. If the backend refuses the client's responses, the task has not ended: answerInputs
// cancels a task that the client does not know. If the client knows the task, its next request
// about the task gets the input requests again.
func (t *taskPoller) answerInputs(ctx context.Context,
	inputs []protocol.InputRequest) (response wire.Message, ok bool) {
	c, p := t.c, t.p
	newInputs, full := p.claimInputs(inputs)
	switch {
	case full:
		c.failWith(&transport.CallLostError{Err: errTooManyRounds, MayHaveRun: true})
		return wire.Message{}, false
	case len(newInputs) == 0:
		return wire.Message{}, true
	}
	responses, declined := (clientInputs{c, p.clientID}).ask(ctx, newInputs)
	switch {
	case ctx.Err() != nil:
		p.unclaimInputs(newInputs) // the next request about the task asks again
		return wire.Message{}, false
	case declined != nil:
		c.cancelTask(p.id, true)
		return *declined, false
	}
	params := wire.EditObject(taskParams(p.id), nil,
		wire.Member{Key: "inputResponses", Text: responses})
	resp := t.send(ctx, protocol.MethodTasksUpdate, params)
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case resp.Err != nil:
		if lost, ok := errors.AsType[*transport.CallLostError](resp.Err); ok && !lost.MayHaveRun {
			p.unclaimInputs(newInputs)
		}
		c.failWith(startedError(resp.Err)) // no retry: the backend may have received the responses
		return wire.Message{}, false
	case resp.Message.Part(wire.PartError) != nil:
		if p.clientID == "" {
			c.cancelTask(p.id, true)
		} else {
			p.unclaimInputs(newInputs)
		}
		return c.toLegacy(resp.Message), false
	}
	return wire.Message{}, true
}

// send sends a request about the task to its backend and waits for the response.
func (t *taskPoller) send(ctx context.Context, method string,
	params []byte) contract.BackendResponse {
	return callTask(ctx, t.c.g.Backends, t.p.backend, contract.BackendRequest{
		Message: wire.NewRequest("0", method, params), Session: t.c.s.id, AllowTask: true})
}

// isRepeatable reports whether a read-only request may be repeated after an error: a lost
// connection or a timeout does not mean that the task has ended.
func isRepeatable(err error) bool {
	_, lost := errors.AsType[*transport.CallLostError](err)
	_, late := errors.AsType[*contract.TimeoutError](err)
	return lost || late
}

// errorResponse returns a response with the given error object.
func errorResponse(object []byte) wire.Message {
	m := wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, ""))
	return m.Splice(wire.Edit{Part: wire.PartError, Text: object})
}

// A progressSynthesizer creates progress notifications for a call that has become a task, if the
// client's request has a progress token: one for each new status message, and one per
// progressInterval. When the backend itself reports progress, the progressSynthesizer stops,
// because the values of the two would contradict each other.
type progressSynthesizer struct {
	c           *sessionCall
	count       int
	last        time.Time
	lastMessage string
}

func (t *progressSynthesizer) maybeReport(task []byte) {
	token := t.c.r.Token()
	literal, _ := wire.Lookup(task, "statusMessage")
	message := string(literal)
	if token == "" || t.c.sawProgress.Load() ||
		message == t.lastMessage && time.Since(t.last) < progressInterval ||
		t.c.conn.isBacklogged(t.c.Route.Backend) {
		return
	}
	t.count++
	t.last, t.lastMessage = time.Now(), message
	members := []wire.Member{{Key: "progressToken", Text: []byte(token)},
		{Key: "progress", Text: strconv.AppendInt(nil, int64(t.count), 10)}}
	if wire.Unquote(literal) != "" {
		members = append(members, wire.Member{Key: "message", Text: literal})
	}
	t.c.r.Notify(wire.NewNotification(protocol.NotificationProgress,
		wire.EditObject(nil, nil, members...)))
}
