package protocol

import "mcpgateway/internal/wire"

// CompleteResult is the result of tasks/update and tasks/cancel in the stateless era, which
// say nothing of the task.
const CompleteResult = `{"resultType":"complete"}`

// A InputResponse is what a client has answered to the InputRequest of that key: what would have
// been the result of a request of its own in the session era.
type InputResponse struct {
	Key    string
	Result []byte // an object
}

// ParseTaskUpdate reads a tasks/update: the task it names, and what it answers, in its order.
// It fails with -32602 if it names none, or has no responses that can be read, or more
// than one task may have questions.
func ParseTaskUpdate(m wire.Message) (id string, responses []InputResponse, err *wire.Error) {
	params := m.Part(wire.PartParams)
	literal, _ := wire.Lookup(params, "taskId")
	if id = wire.Unquote(literal); id == "" {
		return "", nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: tasks/update needs a taskId")
	}
	given, _ := wire.Lookup(params, "inputResponses")
	if !wire.IsObject(given) {
		return "", nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: tasks/update needs inputResponses, an object")
	}
	wire.Members(given, func(key string, value []byte, _ int) {
		switch {
		case !wire.IsObject(value):
			err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: of inputResponses each is an object")
		case len(responses) == maxInputs:
			err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: more than %d inputResponses", maxInputs)
		default:
			responses = append(responses, InputResponse{Key: key, Result: value})
		}
	})
	if err != nil {
		return "", nil, err
	}
	return id, responses, nil
}

// maxListened bounds the tasks that one subscriptions/listen names.
const maxListened = 4096

// ListenTaskIDs returns the ids of the tasks of which a subscriptions/listen asks to be
// told, nil if of none, in its order. It fails with -32602 if they cannot be read, or are
// more than 4096.
func ListenTaskIDs(m wire.Message) (ids []string, err *wire.Error) {
	list, _ := wire.Lookup(m.Part(wire.PartParams), "notifications", "taskIds")
	if wire.IsNull(list) {
		return nil, nil
	}
	if list[0] != '[' {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: taskIds is a list")
	}
	wire.EachElement(list, func(one []byte) bool {
		id := wire.Unquote(one)
		switch {
		case id == "":
			err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: taskIds is a list of ids")
		case len(ids) == maxListened:
			err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: more than %d taskIds", maxListened)
		default:
			ids = append(ids, id)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}
