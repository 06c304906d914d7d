package protocol

import "mcpgateway/internal/wire"

// CompleteResult is the modern result of tasks/update and tasks/cancel, which does not contain the
// task.
const CompleteResult = `{"resultType":"complete"}`

// An InputResponse is a client's response to the InputRequest with this key. A legacy client would
// have sent Result as the result of a request.
type InputResponse struct {
	Key    string
	Result []byte // an object
}

// ParseTaskUpdate reads the task id and the input responses, in their order, of a tasks/update. The
// error has the code -32602. It is returned if the id is missing, if the responses are not objects
// in an object, or if their number exceeds maxInputRequests.
func ParseTaskUpdate(m wire.Message) (id string, responses []InputResponse, err *wire.Error) {
	params := m.Part(wire.PartParams)
	literal, _ := wire.Lookup(params, "taskId")
	if id = wire.Unquote(literal); id == "" {
		return "", nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: tasks/update needs a taskId")
	}
	given, _ := wire.Lookup(params, "inputResponses")
	if !wire.IsObject(given) {
		return "", nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: tasks/update needs inputResponses, an object")
	}
	wire.Members(given, func(key string, value []byte, _ int) {
		switch {
		case !wire.IsObject(value):
			err = wire.Errorf(wire.CodeInvalidParams,
				"Invalid params: each of inputResponses must be an object")
		case len(responses) == maxInputRequests:
			err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: more than %d inputResponses",
				maxInputRequests)
		default:
			responses = append(responses, InputResponse{Key: key, Result: value})
		}
	})
	if err != nil {
		return "", nil, err
	}
	return id, responses, nil
}

// maxListenTaskIDs bounds the task ids of one subscriptions/listen.
const maxListenTaskIDs = 4096

// ListenTaskIDs returns the task ids in a subscriptions/listen in their order, nil if there are
// none. It returns an error with the code -32602 if they are not a list of strings or if their
// number exceeds maxListenTaskIDs.
func ListenTaskIDs(m wire.Message) (ids []string, err *wire.Error) {
	list, _ := wire.Lookup(m.Part(wire.PartParams), "notifications", "taskIds")
	if wire.IsNull(list) {
		return nil, nil
	}
	if list[0] != '[' {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: taskIds must be a list")
	}
	wire.EachElement(list, func(one []byte) bool {
		id := wire.Unquote(one)
		switch {
		case id == "":
			err = wire.Errorf(wire.CodeInvalidParams,
				"Invalid params: taskIds must be a list of ids")
		case len(ids) == maxListenTaskIDs:
			err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: more than %d taskIds",
				maxListenTaskIDs)
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
