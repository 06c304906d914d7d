package protocol

import (
	"mcpgateway/internal/wire"
)

// The values of a tool's execution.taskSupport in 2025-11-25.
const (
	TaskSupportForbidden = "forbidden" // also the default
	TaskSupportOptional  = "optional"
	TaskSupportRequired  = "required"
)

// HasTasksExtension reports whether the modern capabilities of a client or server contain the
// tasks extension.
func HasTasksExtension(capabilities []byte) bool {
	settings, _ := wire.Lookup(capabilities, "extensions", TasksExtension)
	return wire.IsObject(settings)
}

// AddTasksExtension adds the tasks extension to modern capabilities. It returns capabilities
// itself if they have it.
func AddTasksExtension(capabilities []byte) []byte {
	if HasTasksExtension(capabilities) {
		return capabilities
	}
	extensions, _ := wire.Lookup(capabilities, "extensions")
	extensions = wire.EditObject(extensions, nil,
		wire.Member{Key: TasksExtension, Text: []byte("{}")})
	return wire.EditObject(capabilities, nil, wire.Member{Key: "extensions", Text: extensions})
}

// MissingTasksError returns the error for a client without the tasks extension. Requests about
// tasks, and calls whose only possible result is a task, need the extension.
func MissingTasksError() *wire.Error {
	e := wire.Errorf(CodeMissingCapability, "Missing required client capability: the extension %s",
		TasksExtension)
	e.Data = wire.EditObject(nil, nil, wire.Member{Key: "requiredCapabilities",
		Text: AddTasksExtension(nil)})
	return e
}

// TaskSupport returns the execution.taskSupport of a tool of 2025-11-25. An absent or unknown value
// counts as forbidden.
func TaskSupport(tool []byte) string {
	value, _ := wire.Lookup(tool, "execution", "taskSupport")
	switch support := wire.Unquote(value); support {
	case TaskSupportOptional, TaskSupportRequired:
		return support
	}
	return TaskSupportForbidden
}

// StripExecution removes the member execution from a tool, for lists of the modern generation, in
// which the server decides whether a call becomes a task. It returns tool itself if the member is
// absent or occurs twice.
func StripExecution(tool []byte) []byte {
	if !mayContainMember(tool, "execution") {
		return tool
	}
	if value, at := wire.Lookup(tool, "execution"); value == nil && at == 0 {
		return tool
	}
	return wire.EditObject(tool, func(key string) bool { return key == "execution" })
}

// AddTaskParam adds the task param of 2025-11-25, with which a client asks for a task, to a
// tools/call. It replaces an existing task param, and returns m itself if the params are not an
// object.
func AddTaskParam(m wire.Message) wire.Message {
	params := m.Part(wire.PartParams)
	if !wire.IsObject(params) {
		return m
	}
	return setParams(m, wire.EditObject(params, nil, wire.Member{Key: "task", Text: []byte("{}")}))
}

// StripTaskParam removes the task param of 2025-11-25 from a request. It returns m itself if there
// is none.
func StripTaskParam(m wire.Message) wire.Message {
	params := m.Part(wire.PartParams)
	if value, _ := wire.Lookup(params, "task"); value == nil {
		return m
	}
	return setParams(m, wire.EditObject(params, func(key string) bool { return key == "task" }))
}

func setParams(m wire.Message, params []byte) wire.Message {
	return m.Splice(wire.Edit{Part: wire.PartParams, Text: params})
}
