package protocol

import (
	"errors"
	"fmt"
	"slices"

	"mcpgateway/internal/wire"
)

// An InputRequest is one of the questions of a result that is input_required: what a server
// of the session era would have asked as a request of its own.
type InputRequest struct {
	Key    string
	Method string
	Params []byte // an object; nil = none
}

// maxInputs bounds the questions of one result.
const maxInputs = 256

// ReadInputRequests reads a result that is input_required: its questions, in their order, and
// the JSON text of its requestState, nil if it has none. One that has neither is an
// error, and so is one whose questions cannot be read.
func ReadInputRequests(result []byte) (inputs []InputRequest, state []byte, err error) {
	if err := checkNames(result, "its result", "inputRequests", "requestState", "resultType"); err != nil {
		return nil, nil, err
	}
	state, _ = wire.Lookup(result, "requestState")
	requests, _ := wire.Lookup(result, "inputRequests")
	if wire.IsNull(state) {
		state = nil
	} else if state[0] != '"' {
		return nil, nil, errors.New("its requestState is no string")
	}
	if wire.IsNull(requests) {
		requests = []byte("{}")
	}
	if !wire.Members(requests, func(key string, value []byte, _ int) {
		method, _ := wire.Lookup(value, "method")
		params, _ := wire.Lookup(value, "params")
		in := InputRequest{Key: key, Method: wire.Unquote(method), Params: params}
		if wire.IsNull(params) {
			in.Params = nil
		}
		unclear := checkNames(value, "its inputRequests", "method", "params")
		if unclear == nil && in.Method == "elicitation/create" {
			unclear = CheckElicitationParams(params)
		}
		switch {
		case err != nil:
		case unclear != nil:
			err = fmt.Errorf("an entry of its inputRequests is not clear: %w", unclear)
		case in.Method == "":
			err = errors.New("its inputRequests have one without a method")
		case in.Params != nil && !wire.IsObject(params):
			err = errors.New("its inputRequests have one whose params are no object")
		case slices.ContainsFunc(inputs, func(other InputRequest) bool { return other.Key == key }):
			err = errors.New("its inputRequests have two of one name")
		case len(inputs) == maxInputs:
			err = fmt.Errorf("it has more than %d inputRequests", maxInputs)
		default:
			inputs = append(inputs, in)
		}
	}) {
		err = errors.New("its inputRequests are no object")
	}
	if err == nil && len(inputs) == 0 && state == nil {
		err = errors.New("it has neither inputRequests nor a requestState")
	}
	return inputs, state, err
}

// InputRequiredResult returns the result that asks for inputs. State is a string of ours that
// the client gives back.
func InputRequiredResult(inputs []InputRequest, state string) []byte {
	put := []wire.Member{{Key: "resultType", Text: []byte(`"input_required"`)}}
	if len(inputs) > 0 {
		put = append(put, wire.Member{Key: "inputRequests", Text: writeRequests(inputs)})
	}
	if state != "" {
		put = append(put, wire.Member{Key: "requestState", Text: wire.Quote(state)})
	}
	return wire.EditObject(nil, nil, put...)
}

// writeRequests returns inputs as they stand in inputRequests.
func writeRequests(inputs []InputRequest) []byte {
	requests := make([]wire.Member, 0, len(inputs))
	for _, in := range inputs {
		params := in.Params
		if params == nil {
			params = []byte("{}") // go-sdk 1.8.0 cannot read a request without them
		}
		one := []wire.Member{{Key: "method", Text: wire.Quote(in.Method)}, {Key: "params", Text: params}}
		requests = append(requests, wire.Member{Key: in.Key, Text: wire.EditObject(nil, nil, one...)})
	}
	return wire.EditObject(nil, nil, requests...)
}

// StripNullInputs returns a result that is input_required without inputRequests or requestState
// that are null: so some servers write that there are none.
func StripNullInputs(m wire.Message) wire.Message {
	result := m.Part(wire.PartResult)
	null := func(key string) bool {
		value, times := lookup(result, key)
		return times == 1 && wire.IsNull(value)
	}
	rest := strip(result, func(key string) bool {
		return (key == "inputRequests" || key == "requestState") && null(key)
	})
	if same(rest, result) {
		return m
	}
	return setResult(m, rest)
}

// StripInputRequired returns a result without the members that belong to the status input_required.
func StripInputRequired(m wire.Message) wire.Message {
	result := m.Part(wire.PartResult)
	rest := strip(result, func(key string) bool { return key == "inputRequests" || key == "requestState" })
	if same(rest, result) {
		return m
	}
	return setResult(m, rest)
}

// SetRequestState returns a result that is input_required with another requestState; what
// else it says stays as it is. "" takes it out.
func SetRequestState(m wire.Message, state string) wire.Message {
	const key = "requestState"
	if state == "" {
		return setResult(m, wire.EditObject(m.Part(wire.PartResult), func(k string) bool { return k == key }))
	}
	return setResult(m, wire.EditObject(m.Part(wire.PartResult), nil, wire.Member{Key: key, Text: wire.Quote(state)}))
}

// ReadContinuation returns the inputResponses of a request, nil if it has none that are an
// object, and its requestState, "" if it has none; retry says whether it has either,
// be it one that is unusable: then it is no first try.
func ReadContinuation(m wire.Message) (responses []byte, state string, retry bool) {
	given, literal := m.Part(wire.PartInputResponses), m.Part(wire.PartRequestState)
	if wire.IsObject(given) {
		responses = given
	}
	return responses, wire.Unquote(literal), given != nil || literal != nil
}

// SetContinuation returns the request m with other inputResponses and another requestState, the
// JSON text of each, in the place of those that it has; nil = none.
func SetContinuation(m wire.Message, responses, state []byte) wire.Message {
	var put []wire.Member
	if responses != nil {
		put = append(put, wire.Member{Key: "inputResponses", Text: responses})
	}
	if state != nil {
		put = append(put, wire.Member{Key: "requestState", Text: state})
	}
	drop := func(key string) bool { return key == "inputResponses" || key == "requestState" }
	return m.Splice(wire.Edit{Part: wire.PartParams, Text: wire.EditObject(m.Part(wire.PartParams), drop, put...)})
}
