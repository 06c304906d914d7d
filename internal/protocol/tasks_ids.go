package protocol

import (
	"slices"

	"mcpgateway/internal/wire"
)

// metaRelated is the member of _meta by which a classic message says to which task it
// belongs. ToModern ones never do.
const metaRelated = reserved + "related-task"

// TaskID returns the id of the task that an object is, names or says was made: a task
// of either kind, the params of a request or notification about one, the result that
// made one. "" stands for none.
func TaskID(object []byte) string {
	id, _ := wire.Lookup(object, taskPath(object)...)
	return wire.Unquote(id)
}

// SetTaskID returns such an object with another id in the place of the one that it has,
// and all else byte for byte as it was. One that has none stays as it is.
func SetTaskID(object []byte, id string) []byte {
	was, at := wire.Lookup(object, taskPath(object)...)
	if was == nil {
		return object
	}
	return slices.Concat(object[:at], wire.Quote(id), object[at+len(was):])
}

func taskPath(object []byte) []string {
	if id, _ := wire.Lookup(object, "taskId"); id == nil {
		return []string{"task", "taskId"} // classic, of one that was made
	}
	return []string{"taskId"}
}

// SetMessageTaskID is SetTaskID for the params of a message, or its result.
func SetMessageTaskID(m wire.Message, id string) wire.Message {
	for _, part := range []wire.Part{wire.PartParams, wire.PartResult} {
		if object := m.Part(part); TaskID(object) != "" {
			return m.Splice(wire.Edit{Part: part, Text: SetTaskID(object, id)})
		}
	}
	return m
}

// AddRelatedTask returns the params or the result of a classic message with the id of the task
// that it belongs to in its _meta, in the place of any other.
func AddRelatedTask(object []byte, id string) []byte {
	task := wire.EditObject(nil, nil, wire.Member{Key: "taskId", Text: wire.Quote(id)})
	meta, _ := wire.Lookup(object, "_meta")
	meta = wire.EditObject(meta, nil, wire.Member{Key: metaRelated, Text: task})
	return wire.EditObject(object, nil, wire.Member{Key: "_meta", Text: meta})
}

// StripRelatedTask returns params or a result without that, and without a _meta that is then
// empty. What has none is returned as it is.
func StripRelatedTask(object []byte) []byte {
	if !mayHave(object, "related-task") {
		return object
	}
	meta, _ := wire.Lookup(object, "_meta")
	if value, _ := wire.Lookup(meta, metaRelated); value == nil {
		return object
	}
	meta = wire.EditObject(meta, func(key string) bool { return key == metaRelated })
	if string(meta) == "{}" {
		return wire.EditObject(object, func(key string) bool { return key == "_meta" })
	}
	return wire.EditObject(object, nil, wire.Member{Key: "_meta", Text: meta})
}
