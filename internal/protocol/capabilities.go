package protocol

import "mcpgateway/internal/wire"

// ClientCapabilitiesToModern returns the capabilities of a client of the session era as a
// stateless request declares them: without tasks, and without those of being told of
// other roots, which the era has not. What is no object is taken for an empty one.
func ClientCapabilitiesToModern(caps []byte) []byte {
	if !wire.IsObject(caps) {
		return []byte("{}")
	}
	caps = mapMember(caps, "roots", func(roots []byte) []byte { return without(roots, "listChanged") })
	return without(caps, "tasks")
}

// ServerCapabilitiesToLegacy returns the capabilities of a server as clients of the
// session era are told of them: without the extension that tasks are in the other one.
func ServerCapabilitiesToLegacy(caps []byte) []byte {
	extensions, _ := wire.Lookup(caps, "extensions")
	if rest := without(extensions, TasksExtension); same(rest, extensions) {
		return caps
	} else if string(rest) == "{}" {
		return without(caps, "extensions")
	}
	return mapMember(caps, "extensions", func(extensions []byte) []byte { return without(extensions, TasksExtension) })
}

// ServerCapabilitiesToModern returns the capabilities of a server as clients of the
// stateless era are told of them: without tasks, for they are an extension, which is
// there if tasks says so.
func ServerCapabilitiesToModern(caps []byte, tasks bool) []byte {
	caps = without(ServerCapabilitiesToLegacy(caps), "tasks")
	if !tasks {
		return caps
	}
	extensions, _ := wire.Lookup(caps, "extensions")
	extensions = wire.EditObject(extensions, nil, wire.Member{Key: TasksExtension, Text: []byte("{}")})
	return wire.EditObject(caps, nil, wire.Member{Key: "extensions", Text: extensions})
}
