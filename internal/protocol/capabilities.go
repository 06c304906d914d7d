package protocol

import "mcpgateway/internal/wire"

// ClientCapabilitiesToModern returns the capabilities of a legacy client in the form for a modern
// request: without tasks and roots.listChanged, which the modern generation does not have. A value
// that is not an object is treated as {}.
func ClientCapabilitiesToModern(caps []byte) []byte {
	if !wire.IsObject(caps) {
		return []byte("{}")
	}
	caps = mapMember(caps, "roots", func(roots []byte) []byte {
		return dropMember(roots, "listChanged")
	})
	return dropMember(caps, "tasks")
}

// ServerCapabilitiesToLegacy returns the capabilities of a server for legacy clients: without the
// tasks extension, which only the modern generation has, and without extensions if no other
// extension is left.
func ServerCapabilitiesToLegacy(caps []byte) []byte {
	extensions, _ := wire.Lookup(caps, "extensions")
	if rest := dropMember(extensions, TasksExtension); wire.SameSlice(rest, extensions) {
		return caps
	} else if string(rest) == "{}" {
		return dropMember(caps, "extensions")
	}
	return mapMember(caps, "extensions", func(extensions []byte) []byte {
		return dropMember(extensions, TasksExtension)
	})
}

// ServerCapabilitiesToModern returns the capabilities of a server for modern clients: without the
// legacy tasks capability, and with the tasks extension if tasks is true.
func ServerCapabilitiesToModern(caps []byte, tasks bool) []byte {
	caps = dropMember(ServerCapabilitiesToLegacy(caps), "tasks")
	if !tasks {
		return caps
	}
	extensions, _ := wire.Lookup(caps, "extensions")
	extensions = wire.EditObject(extensions, nil,
		wire.Member{Key: TasksExtension, Text: []byte("{}")})
	return wire.EditObject(caps, nil, wire.Member{Key: "extensions", Text: extensions})
}
