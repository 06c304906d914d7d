package protocol

import (
	"mcpgateway/internal/wire"
)

// TasksExtension is the extension of the stateless era by which calls become tasks.
const TasksExtension = reserved + "tasks"

// What a tool says of tasks in its execution.taskSupport, in 2025-11-25.
const (
	TaskForbidden = "forbidden" // if it says nothing, too
	TaskOptional  = "optional"
	TaskRequired  = "required"
)

// DeclaresTasks reports whether capabilities of the stateless era, a client's or a
// server's, have the extension for tasks.
func DeclaresTasks(capabilities []byte) bool {
	settings, _ := wire.Lookup(capabilities, "extensions", TasksExtension)
	return wire.IsObject(settings)
}

// DeclareTasks returns capabilities of the stateless era with the extension for tasks.
// All else in them stays as it is, and they do if they have it.
func DeclareTasks(capabilities []byte) []byte {
	if DeclaresTasks(capabilities) {
		return capabilities
	}
	extensions, _ := wire.Lookup(capabilities, "extensions")
	extensions = wire.Revise(extensions, nil, wire.Member{Key: TasksExtension, Text: []byte("{}")})
	return wire.Revise(capabilities, nil, wire.Member{Key: "extensions", Text: extensions})
}

// NeedsTasks returns the error for a client that has not declared that extension: asked
// for by each request about tasks, and by a call that can be answered with one only.
func NeedsTasks() *wire.Error {
	e := wire.Errorf(CodeMissingCapability, "Missing required client capability: the extension %s", TasksExtension)
	e.Data = wire.Revise(nil, nil, wire.Member{Key: "requiredCapabilities", Text: DeclareTasks(nil)})
	return e
}

// TaskSupport returns whether a tool of 2025-11-25 can be, or has to be, called as a task.
func TaskSupport(tool []byte) string {
	value, _ := wire.Lookup(tool, "execution", "taskSupport")
	switch support := wire.Unquote(value); support {
	case TaskOptional, TaskRequired:
		return support
	}
	return TaskForbidden
}

// WithoutExecution returns a tool as it stands in a list of the stateless era, in which
// whether a call becomes a task is the server's choice. One that says nothing of it is
// returned as it is.
func WithoutExecution(tool []byte) []byte {
	if !mayHave(tool, "execution") {
		return tool
	}
	if value, at := wire.Lookup(tool, "execution"); value == nil && at == 0 {
		return tool
	}
	return wire.Revise(tool, func(key string) bool { return key == "execution" })
}

// AskForTask returns a tools/call that asks, as in 2025-11-25, for a task, whatever it
// said of that before.
func AskForTask(m wire.Message) wire.Message {
	params := m.Part(wire.PartParams)
	if !wire.IsObject(params) {
		return m
	}
	return setParams(m, wire.Revise(params, nil, wire.Member{Key: "task", Text: []byte("{}")}))
}

// WithoutTask returns a request that does not ask, as in 2025-11-25, for a task: in the
// stateless era nobody does. One that did not is returned as it is.
func WithoutTask(m wire.Message) wire.Message {
	params := m.Part(wire.PartParams)
	if value, _ := wire.Lookup(params, "task"); value == nil {
		return m
	}
	return setParams(m, wire.Revise(params, func(key string) bool { return key == "task" }))
}

func setParams(m wire.Message, params []byte) wire.Message {
	return m.Splice(wire.Edit{Part: wire.PartParams, Text: params})
}
