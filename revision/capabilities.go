package revision

import "mcpgateway/wire"

// extensionTasks is the extension that tasks of the session era became.
const extensionTasks = reserved + "tasks"

// ModernCapabilities returns the capabilities of a client of the session era as a
// stateless request declares them: without tasks, and without those of being told of
// other roots, which the era has not. What is no object is taken for an empty one.
func ModernCapabilities(caps []byte) []byte {
	if !wire.IsObject(caps) {
		return []byte("{}")
	}
	caps = mapMembers(caps, func(key string, value []byte) []byte {
		if key == "roots" {
			return without(value, "listChanged")
		}
		return value
	})
	return without(caps, "tasks")
}

// ClassicServerCapabilities returns the capabilities of a server as clients of the
// session era are told of them: without the extension that tasks are in the other one.
func ClassicServerCapabilities(caps []byte) []byte {
	extensions, _ := wire.Lookup(caps, "extensions")
	if rest := without(extensions, extensionTasks); same(rest, extensions) {
		return caps
	} else if string(rest) == "{}" {
		return without(caps, "extensions")
	}
	return mapMembers(caps, func(key string, value []byte) []byte {
		if key == "extensions" {
			return without(value, extensionTasks)
		}
		return value
	})
}

// ModernServerCapabilities returns the capabilities of a server as clients of the
// stateless era are told of them: without tasks, for they are an extension, which is
// there if tasks says so.
func ModernServerCapabilities(caps []byte, tasks bool) []byte {
	caps = without(ClassicServerCapabilities(caps), "tasks")
	if !tasks {
		return caps
	}
	extensions, _ := wire.Lookup(caps, "extensions")
	extensions = wire.Revise(extensions, nil, wire.Member{Key: extensionTasks, Text: []byte("{}")})
	return wire.Revise(caps, nil, wire.Member{Key: "extensions", Text: extensions})
}

// without returns an object without one of its members, and the same slice if it has no
// such member or is no object.
func without(object []byte, name string) []byte {
	found := false
	if !wire.IsObject(object) {
		return object
	}
	wire.Members(object, func(key string, _ []byte, _ int) { found = found || key == name })
	if !found {
		return object
	}
	return wire.Revise(object, func(key string) bool { return key == name })
}
