package protocol

import (
	"errors"
	"fmt"
	"slices"

	"mcpgateway/internal/wire"
)

// An InputRequest is an entry of inputRequests in an input_required result. A legacy server would
// have sent it as a request.
type InputRequest struct {
	Key    string
	Method string
	Params []byte // an object; nil = absent
}

// maxInputRequests bounds the input requests of one result.
const maxInputRequests = 256

// ReadInputRequests reads an input_required result. It returns the input requests in their order,
// and the JSON text of the requestState, nil if there is none. It returns an error if the result
// has neither member, if a member is ambiguous or invalid, if an input request has params that a
// received request must not have, or if there are more than maxInputRequests input requests.
func ReadInputRequests(result []byte) (inputs []InputRequest, state []byte, err error) {
	if err := checkMembers(result, "its result", "inputRequests", "requestState",
		"resultType"); err != nil {
		return nil, nil, err
	}
	state, _ = wire.Lookup(result, "requestState")
	requests, _ := wire.Lookup(result, "inputRequests")
	if wire.IsNull(state) {
		state = nil
	} else if state[0] != '"' {
		return nil, nil, errors.New("its requestState is not a string")
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
		unclear := checkMembers(value, "its inputRequests", "method", "params")
		if unclear == nil && in.Method == MethodElicitationCreate {
			unclear = CheckElicitationParams(params)
		}
		if unclear == nil {
			_, unclear = wire.ParseRequest("0", in.Method, in.Params)
		}
		switch {
		case err != nil:
		case unclear != nil:
			err = fmt.Errorf("an entry of its inputRequests is ambiguous: %w", unclear)
		case in.Method == "":
			err = errors.New("an entry of its inputRequests has no method")
		case in.Params != nil && !wire.IsObject(params):
			err = errors.New("an entry of its inputRequests has params that are not an object")
		case slices.ContainsFunc(inputs, func(other InputRequest) bool { return other.Key == key }):
			err = errors.New("its inputRequests have two entries with the same key")
		case len(inputs) == maxInputRequests:
			err = fmt.Errorf("it has more than %d inputRequests", maxInputRequests)
		default:
			inputs = append(inputs, in)
		}
	}) {
		err = errors.New("its inputRequests are not an object")
	}
	if err == nil && len(inputs) == 0 && state == nil {
		err = errors.New("it has neither inputRequests nor a requestState")
	}
	return inputs, state, err
}

// InputRequiredResult returns the result that asks the client for inputs. state is the gateway's
// requestState, which the client sends back unchanged; "" = none.
func InputRequiredResult(inputs []InputRequest, state string) []byte {
	put := []wire.Member{{Key: "resultType", Text: []byte(`"input_required"`)}}
	if len(inputs) > 0 {
		put = append(put, wire.Member{Key: "inputRequests", Text: encodeInputRequests(inputs)})
	}
	if state != "" {
		put = append(put, wire.Member{Key: "requestState", Text: wire.Quote(state)})
	}
	return wire.EditObject(nil, nil, put...)
}

// encodeInputRequests returns input requests as the JSON value of inputRequests.
func encodeInputRequests(inputs []InputRequest) []byte {
	requests := make([]wire.Member, 0, len(inputs))
	for _, in := range inputs {
		params := in.Params
		if params == nil {
			params = []byte("{}") // go-sdk 1.8.0 cannot read a request without params
		}
		one := []wire.Member{{Key: "method", Text: wire.Quote(in.Method)},
			{Key: "params", Text: params}}
		requests = append(requests, wire.Member{Key: in.Key,
			Text: wire.EditObject(nil, nil, one...)})
	}
	return wire.EditObject(nil, nil, requests...)
}

// StripNullInputs removes null inputRequests and a null requestState from an input_required
// result. Some servers write null for absent members.
func StripNullInputs(m wire.Message) wire.Message {
	result := m.Part(wire.PartResult)
	null := func(key string) bool {
		value, times := lookupCounted(result, key)
		return times == 1 && wire.IsNull(value)
	}
	rest := dropMembers(result, func(key string) bool {
		return (key == "inputRequests" || key == "requestState") && null(key)
	})
	if wire.SameSlice(rest, result) {
		return m
	}
	return setResult(m, rest)
}

// StripInputRequired removes the members inputRequests and requestState from a result.
func StripInputRequired(m wire.Message) wire.Message {
	result := m.Part(wire.PartResult)
	rest := dropMembers(result, func(key string) bool {
		return key == "inputRequests" || key == "requestState"
	})
	if wire.SameSlice(rest, result) {
		return m
	}
	return setResult(m, rest)
}

// SetRequestState returns an input_required result with another requestState, or without one if
// state is "". Other members keep their bytes.
func SetRequestState(m wire.Message, state string) wire.Message {
	const key = "requestState"
	if state == "" {
		return setResult(m, wire.EditObject(m.Part(wire.PartResult), func(k string) bool {
			return k == key
		}))
	}
	return setResult(m, wire.EditObject(m.Part(wire.PartResult), nil,
		wire.Member{Key: key, Text: wire.Quote(state)}))
}

// ReadContinuation returns the inputResponses of a request, nil if they are not an object, and its
// requestState, "" if it is not a string. retry reports whether the request has one of these
// members, valid or not, and is therefore not the first attempt.
func ReadContinuation(m wire.Message) (responses []byte, state string, retry bool) {
	given, literal := m.Part(wire.PartInputResponses), m.Part(wire.PartRequestState)
	if wire.IsObject(given) {
		responses = given
	}
	return responses, wire.Unquote(literal), given != nil || literal != nil
}

// SetContinuation replaces the inputResponses and the requestState of a request by these JSON
// texts; nil removes a member. It returns a copy of m if m has no params.
func SetContinuation(m wire.Message, responses, state []byte) wire.Message {
	var put []wire.Member
	if responses != nil {
		put = append(put, wire.Member{Key: "inputResponses", Text: responses})
	}
	if state != nil {
		put = append(put, wire.Member{Key: "requestState", Text: state})
	}
	drop := func(key string) bool { return key == "inputResponses" || key == "requestState" }
	return m.Splice(wire.Edit{Part: wire.PartParams,
		Text: wire.EditObject(m.Part(wire.PartParams), drop, put...)})
}
