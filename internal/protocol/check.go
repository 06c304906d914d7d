package protocol

import (
	"errors"
	"fmt"
	"strings"

	"mcpgateway/internal/wire"
)

// CheckElicitationParams returns an error if the params of an elicitation are ambiguous. This is
// the case if message, mode, url or elicitationId occurs twice, occurs in another case, or is not a
// string. The member message is required.
func CheckElicitationParams(params []byte) error {
	if err := checkStrings(params, false, "message", "mode", "url", "elicitationId"); err != nil {
		return err
	}
	if message, _ := wire.Lookup(params, "message"); message == nil {
		return errors.New(`"message" is missing in params`)
	}
	return nil
}

// NormalizeServerRequest returns a request of a server in a form that every client accepts: params
// and params._meta are objects, and params._meta.progressToken is a string or a number. Null in
// place of an object, which some servers write, is replaced by {}, and a null token is removed.
// Without this, some clients would silently drop the request. A value of any other type is an
// error.
func NormalizeServerRequest(m wire.Message) (wire.Message, error) {
	params := m.Part(wire.PartParams)
	switch {
	case params == nil:
		return m, nil
	case wire.IsNull(params):
		return m.Splice(wire.Edit{Part: wire.PartParams, Text: []byte("{}")}), nil
	case !wire.IsObject(params):
		return m, errors.New("params must be an object")
	}
	meta, _ := wire.Lookup(params, "_meta")
	switch {
	case meta == nil:
		return m, nil
	case wire.IsNull(meta):
		m, _ = m.Set([]byte("{}"), "params", "_meta")
		return m, nil
	case !wire.IsObject(meta):
		return m, errors.New(`"_meta" in params must be an object`)
	}
	token, _ := wire.Lookup(meta, "progressToken")
	switch {
	case token == nil:
	case wire.IsNull(token):
		m, _ = m.Set(wire.EditObject(meta, func(key string) bool { return key == "progressToken" }),
			"params", "_meta")
	case token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9'):
		return m, errors.New(`"progressToken" in params._meta must be a string or a number`)
	}
	return m, nil
}

// CheckLogParams returns an error if the member logger in the params of notifications/message
// occurs twice, occurs in another case, or is neither a string nor null.
func CheckLogParams(params []byte) error {
	return checkStrings(params, true, "logger")
}

func checkStrings(params []byte, mayBeNull bool, names ...string) error {
	err := checkMembers(params, "params", names...)
	for _, name := range names {
		value, _ := wire.Lookup(params, name)
		if err == nil && value != nil && value[0] != '"' && !(mayBeNull && wire.IsNull(value)) {
			err = fmt.Errorf("%q in params must be a string", name)
		}
	}
	return err
}

// checkMembers returns an error if one of the members in names occurs twice in an object, or if a
// member differs from one of the names only in case. Clients written in Go ignore the case and use
// the last such member. The text of the error describes the object by the argument where. A value
// that is not an object has no members.
func checkMembers(object []byte, where string, names ...string) (err error) {
	var seen uint
	wire.Members(object, func(key string, _ []byte, _ int) {
		for i, name := range names {
			switch {
			case err != nil || !strings.EqualFold(key, name):
			case key != name:
				err = fmt.Errorf("%q in %s differs from %q only in case", key, where, name)
			case seen&(1<<i) != 0:
				err = fmt.Errorf("%q occurs twice in %s", name, where)
			default:
				seen |= 1 << i
			}
		}
	})
	return err
}

// CheckTask returns an error if a task of either generation, or the params of a notification about
// a task, is ambiguous: a client could read a task id, a status or an input request that differs
// from the gateway's.
func CheckTask(task []byte) error {
	return checkMembers(task, "its task",
		"taskId", "status", "result", "error", "inputRequests", "requestState", "resultType")
}

// CheckCreateTaskResult checks the created task in a legacy result, like CheckTask. It also returns
// an error if the member task itself is ambiguous. It accepts results without a task.
func CheckCreateTaskResult(result []byte) error {
	if err := checkMembers(result, "its result", "task"); err != nil {
		return err
	}
	task, _ := wire.Lookup(result, "task")
	return CheckTask(task)
}

// CheckTaskList is CheckTask for each task of a list.
func CheckTaskList(list []byte) (err error) {
	wire.EachElement(list, func(one []byte) bool {
		err = CheckTask(one)
		return err == nil
	})
	return err
}
