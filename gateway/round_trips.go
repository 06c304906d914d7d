package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A modern backend sends no requests. It responds with input_required, and the gateway sends the
// call again with the client's responses. A session client gets the input requests as requests of
// the gateway, on the stream of its call.

const (
	// maxRounds bounds the responses to one call that contain input requests.
	maxRounds = 10
	// maxEmptyRounds bounds the consecutive input_required responses without input requests.
	maxEmptyRounds = 8
)

var errTooManyRounds = errors.New("it keeps asking for input")

// startRoundTrips starts roundTrips, unless the call is cancelled.
func (c *sessionCall) startRoundTrips(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cancelled {
		c.goLocked(func(ctx context.Context) {
			defer c.unreserveTask() // no task was created
			c.roundTrips(ctx, m)
		})
		return
	}
	c.unreserveTask()
	c.cancelCreatedTask(m)
}

// roundTrips ends a call whose response m is input_required or a task. It sends the input requests
// to the client, and the call with the responses to the backend, until the backend's response is
// final. When ctx is done, the call has already ended.
func (c *sessionCall) roundTrips(ctx context.Context, m wire.Message) {
	rounds := 0 // responses with input requests
	empty := 0  // consecutive responses without input requests
	for protocol.ResultType(m.Part(wire.PartResult)) == protocol.ResultInputRequired {
		inputs, state, err := protocol.ReadInputRequests(m.Part(wire.PartResult))
		switch {
		case err != nil:
			c.failWith(&peer.BadResponseError{Err: err})
			return
		case rounds == maxRounds || empty == maxEmptyRounds:
			c.failWith(&transport.CallLostError{Err: errTooManyRounds, MayHaveRun: true})
			return
		}
		var responses []byte
		if len(inputs) == 0 { // the backend requests a retry, because it is working or overloaded
			empty++
			if !pause(ctx, 250*time.Millisecond+rand.N(250*time.Millisecond)<<min(empty, 3)) {
				return
			}
		} else {
			rounds, empty = rounds+1, 0
			var final *wire.Message
			if responses, final = (clientInputs{c, ""}).ask(ctx, inputs); ctx.Err() != nil {
				return
			}
			if final != nil {
				c.forward(*final)
				return
			}
		}
		resp := c.sendAgain(ctx, responses, state)
		if ctx.Err() != nil {
			c.cancelCreatedTask(resp.Message)
			return
		}
		if resp.Err != nil {
			c.failWith(startedError(resp.Err))
			return
		}
		m = resp.Message
	}
	c.finishRoundTrips(ctx, m)
}

// A retryHandler receives the response to a call that is sent again, and forwards the progress to
// the call.
type retryHandler struct {
	responseWaiter
	c *sessionCall
}

// OnProgress implements contract.CallHandler.
func (r retryHandler) OnProgress(m wire.Message) { r.c.OnProgress(m) }

// sendAgain sends the call again, with the client's responses and the backend's requestState,
// and waits for the response.
func (c *sessionCall) sendAgain(ctx context.Context,
	responses, state []byte) contract.BackendResponse {
	request := c.request(protocol.SetContinuation(c.backendMessage(), responses, state))
	request.Continuation, request.ServerKey = true, c.backendCall.ServerKey()
	handler := retryHandler{make(responseWaiter, 1), c}
	again := c.newBackendCall(request, handler)
	resp := handler.sendAndWait(ctx, again)
	c.history.reconnects.Add(uint32(again.Reconnects()))
	return resp
}

// finishRoundTrips ends the call with the final response of a modern backend. If the response is a
// task that the client has not asked for, it polls the task first. If the call ends before the
// task, it cancels the task.
func (c *sessionCall) finishRoundTrips(ctx context.Context, m wire.Message) {
	created := m.Part(wire.PartResult)
	if created == nil || protocol.ResultType(created) != protocol.ResultTask {
		c.forward(c.toClientResponse(m))
		return
	}
	if err := protocol.CheckTask(created); err != nil {
		c.failWith(&peer.BadResponseError{Err: err})
		return
	}
	backendID := protocol.TaskID(created)
	if backendID == "" || len(backendID) > maxIDSize {
		c.failWith(&peer.BadResponseError{Err: errNoTaskID})
		return
	}
	p := &polledTask{scopedID: scopedID{c.Route.Backend, backendID}}
	if c.taskReserved {
		c.taskReserved = false
		c.s.tasks.addPolled(p)
		p.setStatus(protocol.TaskToLegacy(created))
		if !c.forward(wire.NewResult("0",
			protocol.SetTaskID(protocol.CreateTaskResultToLegacy(created), p.clientID))) {
			c.cancelTask(p.id, true)
		}
		return
	}
	if response, ok := (&taskPoller{c: c, p: p}).untilDone(ctx, created); ok {
		c.forward(response)
	} else {
		c.cancelTask(p.id, true) // no client is waiting
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
