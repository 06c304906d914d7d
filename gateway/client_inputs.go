package gateway

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// inputTimeout is the timeout of an input request to a session client, and of a backend's request
// that belongs to no call.
const inputTimeout = 10 * time.Minute

// maxInputBytes bounds the client's responses to the input requests of one result, in bytes.
const maxInputBytes = 256 << 20

// errNotAnswered is the error of a request to which the client has not responded in time, or before
// it has disconnected.
var errNotAnswered = wire.Errorf(wire.CodeInternalError, "The client has not answered")

// clientInputs sends the input requests of a modern backend to the client of a call, on the stream
// of the call.
type clientInputs struct {
	c      *sessionCall
	taskID string // task that the input requests belong to; "" = none
}

// ask sends all input requests to the client, concurrently, and returns the responses. A failed
// elicitation counts as cancelled by the user. If any other request fails, ask returns the final
// response of the call instead. If the client has not declared the capability of one request, or
// one request cannot be adapted to the client's revision, ask sends none.
func (ci clientInputs) ask(ctx context.Context,
	inputs []protocol.InputRequest) (responses []byte, final *wire.Message) {
	requests, failure := ci.adapt(inputs)
	if failure != nil {
		m := ci.c.inputDeclined(failure)
		return nil, &m
	}
	ci.c.history.rounds.Add(1)
	answers := make([]wire.Member, len(inputs))
	askCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, input := range inputs {
		wg.Go(func() {
			answers[i].Key = input.Key
			var failure *wire.Error
			switch answers[i].Text, failure = ci.askOne(askCtx, requests[i]); {
			case failure == nil:
			case input.Method == protocol.MethodElicitationCreate:
				answers[i].Text = []byte(`{"action":"cancel"}`)
			default:
				cancel(failure) // the first error ends the call
			}
		})
	}
	wg.Wait()
	failure, _ = errors.AsType[*wire.Error](context.Cause(askCtx))
	if failure == nil {
		responses, failure = joinAnswers(answers)
	}
	if failure != nil {
		m := ci.c.inputDeclined(failure)
		return nil, &m
	}
	return responses, nil
}

// joinAnswers returns the value of inputResponses, or an error at the limit of maxInputBytes.
func joinAnswers(answers []wire.Member) ([]byte, *wire.Error) {
	size := 0
	for _, a := range answers {
		size += len(a.Text)
	}
	if size > maxInputBytes {
		return nil, wire.Errorf(wire.CodeInternalError,
			"the client's responses have more than %d bytes", maxInputBytes)
	}
	return wire.EditObject(nil, nil, answers...), nil
}

// adapt adapts a backend's input requests for the client. It returns an error if one of them must
// not be sent.
func (ci clientInputs) adapt(
	inputs []protocol.InputRequest) (requests []wire.Message, failure *wire.Error) {
	client := ci.c.s.lifecycle.handshake()
	var missing mrtr.MissingCapabilities
	for _, input := range inputs {
		missing.Add(client.clientCaps, input.Method, input.Params)
	}
	if !missing.IsEmpty() {
		return nil, wire.Errorf(protocol.CodeMissingCapability, "%s", &missing)
	}
	for _, input := range inputs {
		params, err := protocol.AdaptServerRequest(input.Method, input.Params, client.Revision,
			client.clientCaps)
		if ci.taskID != "" {
			params = protocol.AddRelatedTask(params, ci.taskID)
		}
		m, unclear := wire.ParseRequest("0", input.Method, params)
		if err := cmp.Or(err, unclear); err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "%s: %v", truncate(input.Method), err)
		}
		m = mrtr.WithLabel(ci.c.Route.Backend, m)
		if input.Method == protocol.MethodElicitationCreate &&
			mrtr.ElicitationMode(params) == "url" {
			// 2025-11-25 requires an id, though no completion will be sent
			m, _ = m.Set(wire.Quote(newID()), "params", "elicitationId")
		}
		requests = append(requests, m)
	}
	return requests, nil
}

// askOne sends one request to the client, on the stream of the call and within the limit of open
// requests. It returns the result.
func (ci clientInputs) askOne(ctx context.Context, m wire.Message) ([]byte, *wire.Error) {
	s := ci.c.s
	if err := s.calls.reserveRequest(ci.c.Route.Backend, s.view()); err != nil {
		return nil, err
	}
	defer s.calls.releaseRequest(ci.c.Route.Backend)
	w := make(peer.ResponseChan, 1)
	call := &peer.Call{Handler: w, RelatedTo: ci.c.ID, Timeout: inputTimeout}
	s.peer.Send(m, call)
	var resp peer.Response
	select {
	case resp = <-w:
	case <-ctx.Done():
		call.Cancel(nil)
		resp = <-w
	}
	switch failure := resp.Part(wire.PartError); {
	case resp.Err != nil:
		return nil, errNotAnswered
	case failure != nil:
		return nil, wire.ReadError(failure)
	}
	return resp.Part(wire.PartResult), nil
}
