package protocol

import (
	"slices"

	"mcpgateway/internal/wire"
)

// metaRelated is the member of _meta by which a classic message says to which task it
// belongs. Modern ones never do.
const metaRelated = reserved + "related-task"

// TaskNamed returns the id of the task that an object is, names or says was made: a task
// of either kind, the params of a request or notification about one, the result that
// made one. "" stands for none.
func TaskNamed(object []byte) string {
	id, _ := wire.Lookup(object, taskPath(object)...)
	return wire.Unquote(id)
}

// NameTask returns such an object with another id in the place of the one that it has,
// and all else byte for byte as it was. One that has none stays as it is.
func NameTask(object []byte, id string) []byte {
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

// SetTask is NameTask for the params of a message, or its result.
func SetTask(m wire.Message, id string) wire.Message {
	for _, part := range []wire.Part{wire.PartParams, wire.PartResult} {
		if object := m.Part(part); TaskNamed(object) != "" {
			return m.Splice(wire.Edit{Part: part, Text: NameTask(object, id)})
		}
	}
	return m
}

// Related returns the params or the result of a classic message with the id of the task
// that it belongs to in its _meta, in the place of any other.
func Related(object []byte, id string) []byte {
	task := wire.Revise(nil, nil, wire.Member{Key: "taskId", Text: wire.Quote(id)})
	meta, _ := wire.Lookup(object, "_meta")
	meta = wire.Revise(meta, nil, wire.Member{Key: metaRelated, Text: task})
	return wire.Revise(object, nil, wire.Member{Key: "_meta", Text: meta})
}

// Unrelated returns params or a result without that, and without a _meta that is then
// empty. What has none is returned as it is.
func Unrelated(object []byte) []byte {
	if !mayHave(object, "related-task") {
		return object
	}
	meta, _ := wire.Lookup(object, "_meta")
	if value, _ := wire.Lookup(meta, metaRelated); value == nil {
		return object
	}
	meta = wire.Revise(meta, func(key string) bool { return key == metaRelated })
	if string(meta) == "{}" {
		return wire.Revise(object, func(key string) bool { return key == "_meta" })
	}
	return wire.Revise(object, nil, wire.Member{Key: "_meta", Text: meta})
}
