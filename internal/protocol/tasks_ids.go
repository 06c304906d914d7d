package protocol

import (
	"slices"

	"mcpgateway/internal/wire"
)

// TaskID returns the id of the task in an object: a task of either generation, the params of a
// request or notification about a task, or the result that contains a created task. "" means none.
func TaskID(object []byte) string {
	id, _ := wire.Lookup(object, taskIDPath(object)...)
	return wire.Unquote(id)
}

// SetTaskID replaces the task id in an object that [TaskID] can read. All other bytes stay, and an
// object without a task id is returned unchanged.
func SetTaskID(object []byte, id string) []byte {
	old, at := wire.Lookup(object, taskIDPath(object)...)
	if old == nil {
		return object
	}
	return slices.Concat(object[:at], wire.Quote(id), object[at+len(old):])
}

func taskIDPath(object []byte) []string {
	if id, _ := wire.Lookup(object, "taskId"); id == nil {
		return []string{"task", "taskId"} // a legacy result with a created task
	}
	return []string{"taskId"}
}

// SetMessageTaskID replaces the task id in the params or the result of a message. It returns m
// itself if there is none.
func SetMessageTaskID(m wire.Message, id string) wire.Message {
	for _, part := range []wire.Part{wire.PartParams, wire.PartResult} {
		if object := m.Part(part); TaskID(object) != "" {
			return m.Splice(wire.Edit{Part: part, Text: SetTaskID(object, id)})
		}
	}
	return m
}

// AddRelatedTask sets the related task in the _meta of a legacy message's params or result.
func AddRelatedTask(object []byte, id string) []byte {
	task := wire.EditObject(nil, nil, wire.Member{Key: "taskId", Text: wire.Quote(id)})
	meta, _ := wire.Lookup(object, "_meta")
	meta = wire.EditObject(meta, nil, wire.Member{Key: MetaRelatedTask, Text: task})
	return wire.EditObject(object, nil, wire.Member{Key: "_meta", Text: meta})
}

// StripRelatedTask removes the related task from the _meta of params or a result, and _meta if it
// becomes empty. It returns object itself if there is no related task.
func StripRelatedTask(object []byte) []byte {
	if !mayContainMember(object, "related-task") {
		return object
	}
	meta, _ := wire.Lookup(object, "_meta")
	if value, _ := wire.Lookup(meta, MetaRelatedTask); value == nil {
		return object
	}
	meta = wire.EditObject(meta, func(key string) bool { return key == MetaRelatedTask })
	if string(meta) == "{}" {
		return wire.EditObject(object, func(key string) bool { return key == "_meta" })
	}
	return wire.EditObject(object, nil, wire.Member{Key: "_meta", Text: meta})
}
