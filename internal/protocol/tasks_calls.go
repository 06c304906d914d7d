package protocol

import (
	"mcpgateway/internal/wire"
)

// TasksExtension is the extension of the stateless era by which calls become tasks.
const TasksExtension = reserved + "tasks"

// What a tool says of tasks in its execution.taskSupport, in 2025-11-25.
const (
	TaskSupportForbidden = "forbidden" // if it says nothing, too
	TaskSupportOptional  = "optional"
	TaskSupportRequired  = "required"
)

// HasTasksExtension reports whether capabilities of the stateless era, a client's or a
// server's, have the extension for tasks.
func HasTasksExtension(capabilities []byte) bool {
	settings, _ := wire.Lookup(capabilities, "extensions", TasksExtension)
	return wire.IsObject(settings)
}

// AddTasksExtension returns capabilities of the stateless era with the extension for tasks.
// All else in them stays as it is, and they do if they have it.
func AddTasksExtension(capabilities []byte) []byte {
	if HasTasksExtension(capabilities) {
		return capabilities
	}
	extensions, _ := wire.Lookup(capabilities, "extensions")
	extensions = wire.EditObject(extensions, nil, wire.Member{Key: TasksExtension, Text: []byte("{}")})
	return wire.EditObject(capabilities, nil, wire.Member{Key: "extensions", Text: extensions})
}

// MissingTasksError returns the error for a client that has not declared that extension: asked
// for by each request about tasks, and by a call that can be answered with one only.
func MissingTasksError() *wire.Error {
	e := wire.Errorf(CodeMissingCapability, "Missing required client capability: the extension %s", TasksExtension)
	e.Data = wire.EditObject(nil, nil, wire.Member{Key: "requiredCapabilities", Text: AddTasksExtension(nil)})
	return e
}

// TaskSupport returns whether a tool of 2025-11-25 can be, or has to be, called as a task.
func TaskSupport(tool []byte) string {
	value, _ := wire.Lookup(tool, "execution", "taskSupport")
	switch support := wire.Unquote(value); support {
	case TaskSupportOptional, TaskSupportRequired:
		return support
	}
	return TaskSupportForbidden
}

// StripExecution returns a tool as it stands in a list of the stateless era, in which
// whether a call becomes a task is the server's choice. One that says nothing of it is
// returned as it is.
func StripExecution(tool []byte) []byte {
	if !mayHave(tool, "execution") {
		return tool
	}
	if value, at := wire.Lookup(tool, "execution"); value == nil && at == 0 {
		return tool
	}
	return wire.EditObject(tool, func(key string) bool { return key == "execution" })
}

// AddTaskParam returns a tools/call that asks, as in 2025-11-25, for a task, whatever it
// said of that before.
func AddTaskParam(m wire.Message) wire.Message {
	params := m.Part(wire.PartParams)
	if !wire.IsObject(params) {
		return m
	}
	return setParams(m, wire.EditObject(params, nil, wire.Member{Key: "task", Text: []byte("{}")}))
}

// StripTaskParam returns a request that does not ask, as in 2025-11-25, for a task: in the
// stateless era nobody does. One that did not is returned as it is.
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
