package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"mcpgateway/gateway/internal/mrtr"
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
	// inputTimeout is the timeout of an input request to a session client, and of a backend's
	// request that belongs to no call.
	inputTimeout = 10 * time.Minute
)

var errTooManyRounds = errors.New("it keeps asking for input")

// startRoundTrips continues a call whose response is input_required or a task, unless the call is
// cancelled. It returns false for any other response.
func (c *clientCall) startRoundTrips(m wire.Message) bool {
	result := m.Part(wire.PartResult)
	if kind := protocol.ResultType(result); result == nil ||
		kind != protocol.ResultInputRequired && kind != protocol.ResultTask {
		return false
	}
	unreserve := func() {
		if c.taskReserved {
			c.s.tasks.unreserve() // no task was created
		}
	}
	// c.mu stays locked until the goroutine has started, so that no goroutine is started for a
	// cancelled call.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		unreserve()
		backendID := protocol.TaskID(result)
		if protocol.ResultType(result) == protocol.ResultTask &&
			backendID != "" && len(backendID) <= maxIDSize {
			c.cancelAtBackend(&polledTask{scopedID: scopedID{c.Route.Backend, backendID}})
		}
		return true
	}
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.cancelWait = cancel
	c.s.work.Go(func() {
		defer cancel()
		defer unreserve()
		c.runRoundTrips(ctx, m)
	})
	return true
}

// runRoundTrips sends the input requests to the client, and the call with the responses to the
// backend, until the backend's response is final. When ctx is done, the call has already ended.
func (c *clientCall) runRoundTrips(ctx context.Context, m wire.Message) {
	rounds, emptyRounds := 0, 0
	for protocol.ResultType(m.Part(wire.PartResult)) == protocol.ResultInputRequired {
		inputs, state, err := protocol.ReadInputRequests(m.Part(wire.PartResult))
		switch {
		case err != nil:
			c.failWith(&peer.BadResponseError{Err: err})
			return
		case rounds == maxRounds || emptyRounds == maxEmptyRounds:
			c.failWith(&transport.CallLostError{Err: errTooManyRounds, MayHaveRun: true})
			return
		}
		var responses []byte
		if len(inputs) == 0 { // the backend requests a retry, because it is working or overloaded
			emptyRounds++
			if !pause(ctx, 250*time.Millisecond+rand.N(250*time.Millisecond)<<min(emptyRounds, 3)) {
				return
			}
		} else {
			rounds, emptyRounds = rounds+1, 0
			var final *wire.Message
			if responses, final = c.askAll(ctx, inputs); ctx.Err() != nil {
				return
			}
			if final != nil {
				c.forward(*final)
				return
			}
		}
		resp := c.retryAtBackend(ctx, responses, state)
		if ctx.Err() != nil {
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

// failWith ends the call with an error.
func (c *clientCall) failWith(err error) {
	kind, failure := c.clientError(err)
	if c.r.Fail(failure) {
		c.end(errorOutcome(kind, failure))
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

// askAll sends all input requests of a round to the client, concurrently, and returns the
// responses. A failed elicitation counts as cancelled by the user. If any other request fails,
// askAll returns the final response of the call instead. If the client has not declared the
// capability of one request, or one request cannot be adapted to the client's revision, askAll
// sends none.
func (c *clientCall) askAll(ctx context.Context,
	inputs []protocol.InputRequest) (responses []byte, final *wire.Message) {
	requests, failure := c.clientRequests(inputs)
	if failure != nil {
		m := c.inputDeclined(failure)
		return nil, &m
	}
	answers := make([]wire.Member, len(inputs))
	askCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, input := range inputs {
		wg.Go(func() {
			answers[i].Key = input.Key
			var failure *wire.Error
			switch answers[i].Text, failure = c.ask(askCtx, requests[i]); {
			case failure == nil:
			case input.Method == protocol.MethodElicitationCreate:
				answers[i].Text = []byte(`{"action":"cancel"}`)
			default:
				cancel(failure) // the first error ends the call
			}
		})
	}
	wg.Wait()
	if failure, ok := errors.AsType[*wire.Error](context.Cause(askCtx)); ok {
		m := c.inputDeclined(failure)
		return nil, &m
	}
	return wire.EditObject(nil, nil, answers...), nil
}

// clientRequests adapts a backend's input requests for the client. It returns an error if one of
// them must not be sent.
func (c *clientCall) clientRequests(
	inputs []protocol.InputRequest) (requests []wire.Message, failure *wire.Error) {
	s := c.s
	s.mu.Lock()
	caps := s.negotiated.clientCaps
	s.mu.Unlock()
	var missing mrtr.MissingCapabilities
	for _, input := range inputs {
		missing.Add(caps, wire.NewRequest("0", input.Method, input.Params))
	}
	if !missing.IsEmpty() {
		return nil, wire.Errorf(protocol.CodeMissingCapability, "%s", &missing)
	}
	for _, input := range inputs {
		params, err := protocol.AdaptServerRequest(input.Method, input.Params, s.revision(), caps)
		if err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "%s: %v", truncate(input.Method), err)
		}
		if c.relatedTaskID != "" {
			params = protocol.AddRelatedTask(params, c.relatedTaskID)
		}
		m := mrtr.WithLabel(c.Route.Backend, wire.NewRequest("0", input.Method, params))
		if input.Method == protocol.MethodElicitationCreate &&
			mrtr.ElicitationMode(params) == "url" {
			// 2025-11-25 requires an id, though no completion will be sent
			m, _ = m.Set(wire.Quote(newID()), "params", "elicitationId")
		}
		requests = append(requests, m)
	}
	return requests, nil
}

// ask sends one request to the client, within the limit of open requests, and returns the result.
func (c *clientCall) ask(ctx context.Context, request wire.Message) ([]byte, *wire.Error) {
	s := c.s
	if err := s.reserveServerRequest(c.Route.Backend); err != nil {
		return nil, err
	}
	defer s.releaseServerRequest(c.Route.Backend)
	return c.sendAndWait(ctx, request)
}

// sendAndWait sends a request to the client, on the stream of the call, and waits for the result.
func (c *clientCall) sendAndWait(ctx context.Context, request wire.Message) ([]byte, *wire.Error) {
	w := make(peer.ResponseChan, 1)
	call := &peer.Call{Handler: w, RelatedTo: c.ID, Timeout: inputTimeout}
	c.s.peer.Send(request, call)
	var resp peer.Response
	select {
	case resp = <-w:
	case <-ctx.Done():
		call.Cancel(nil)
		resp = <-w
	}
	switch failure := resp.Part(wire.PartError); {
	case resp.Err != nil:
		return nil, wire.Errorf(wire.CodeInternalError, "The client has not answered")
	case failure != nil:
		return nil, wire.ReadError(failure)
	}
	return resp.Part(wire.PartResult), nil
}

// inputDeclined returns the final response of a call whose client does not supply the input: for a
// tool call a result with isError, so that the model can react; for any other call an error.
func (c *clientCall) inputDeclined(err *wire.Error) wire.Message {
	if !c.isMethod(protocol.MethodToolsCall) {
		return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError,
			"backend %s needs input that the client does not provide: %s", c.Route.Backend,
			err.Message))
	}
	return wire.NewResult("0", wire.Encode(map[string]any{
		"isError": true,
		"content": []any{map[string]string{"type": "text",
			"text": "The tool needs input that the client does not provide: " + err.Message}},
	}))
}

// A retryHandler receives the response to a call that is sent again, and forwards the progress to
// the call.
type retryHandler struct {
	responseWaiter
	c *clientCall
}

// OnProgress implements contract.CallHandler.
func (r retryHandler) OnProgress(m wire.Message) { r.c.OnProgress(m) }

// retryAtBackend sends the call again, with the client's responses and the backend's requestState,
// and waits for the response.
func (c *clientCall) retryAtBackend(ctx context.Context,
	responses, state []byte) contract.BackendResponse {
	request := c.request
	request.Message = protocol.SetContinuation(c.backendMessage(), responses, state)
	request.Continuation, request.ServerKey = true, c.backendCall.ServerKey()
	handler := retryHandler{make(responseWaiter, 1), c}
	return handler.sendAndWait(ctx, c.s.g.Backends.NewCall(c.Route.Backend, request, handler))
}

// toLegacy converts a modern backend's response for a session client.
func (c *clientCall) toLegacy(m wire.Message) wire.Message {
	failure := m.Part(wire.PartError)
	if failure == nil {
		return protocol.ToLegacy(m)
	}
	uri := ""
	if c.isMethod(protocol.MethodResourcesRead) {
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

// revision returns the features of the negotiated protocol revision.
func (s *Session) revision() protocol.Features {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.negotiated.Revision
}
