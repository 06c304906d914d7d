package catalog

import (
	"slices"

	"mcpgateway/internal/wire"
)

const (
	// maxCapabilities bounds the capabilities of one backend, in bytes. Longer
	// ones count as none.
	maxCapabilities = 64 << 10
	// maxMerged bounds how deep they are merged: below it the first counts.
	maxMerged = 8
)

// What the gateway itself can do, whatever its backends can: a session cannot
// negotiate again when one of them comes. certain is all of that if the
// capabilities of all backends are known, possible is what else may come if not.
const (
	certain  = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`
	possible = `{"resources":{"subscribe":true},"logging":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`
)

// Capabilities returns the capabilities to tell a client: the union of the
// backends'. Unless complete, some backend's are not known yet, and what it may
// turn out to have is in it, too.
//
// Objects are merged member by member; true counts for more than false, anything
// for more than null, and otherwise the first counts. What one backend alone
// has is as it was sent. A capability that is no object, as MCP has them, is left
// out: there are clients that would refuse the whole answer.
func (s *Snapshot) Capabilities(complete bool) []byte {
	if complete {
		return s.capabilities[1]()
	}
	return s.capabilities[0]()
}

func (s *Snapshot) union(complete bool) []byte {
	all := [][]byte{[]byte(certain)}
	if !complete {
		all = append(all, []byte(possible))
	}
	for i := range s.listings {
		if c := s.listings[i].capabilities(); c != nil {
			all = append(all, c)
		}
	}
	return unionOfObjects(all, 0)
}

// BackendsWith returns the backends that have a capability, in the order of the
// configuration: Backends("tasks", "list") are those with tasks.list.
func (s *Snapshot) BackendsWith(capability ...string) []string {
	var all []string
	for i := range s.listings {
		if s.listings[i].has(capability...) {
			all = append(all, s.listings[i].Backend)
		}
	}
	return all
}

// HasCapability reports whether a backend has a capability, which counts as absent if it
// is false or null.
func (s *Snapshot) HasCapability(backend string, capability ...string) bool {
	l := s.of[backend]
	return l != nil && l.has(capability...)
}

// capabilities returns those that can be read, nil if there are none.
func (l *Listing) capabilities() []byte {
	if len(l.Capabilities) > maxCapabilities || !wire.Members(l.Capabilities, func(string, []byte, int) {}) {
		return nil
	}
	return l.Capabilities
}

func (l *Listing) has(path ...string) bool { return Declares(l.capabilities(), path...) }

// Declares reports whether a capabilities object has the one to which a path leads.
// One that is false or null is none, nor is one that stands twice.
func Declares(capabilities []byte, path ...string) bool {
	value, _ := wire.Lookup(capabilities, path...)
	return !wire.IsNull(value) && string(value) != "false"
}

// union merges values, of which there is at least one.
func union(values [][]byte, depth int) []byte {
	first := values[0]
	for _, v := range values[1:] {
		if wire.IsNull(first) || string(first) == "false" && string(v) == "true" {
			first = v
		}
	}
	objects := slices.DeleteFunc(values, notObject)
	if notObject(first) || len(objects) == 1 || depth == maxMerged {
		return first
	}
	return unionOfObjects(objects, depth)
}

func notObject(value []byte) bool { return !wire.IsObject(value) }

func unionOfObjects(objects [][]byte, depth int) []byte {
	keys, values := gather(objects)
	b := []byte{'{'}
	for _, key := range keys {
		all := values[key]
		if depth == 0 {
			all = slices.DeleteFunc(all, notObject)
		}
		if len(all) == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, wire.Quote(key)...), ':')
		b = append(b, union(all, depth+1)...)
	}
	return append(b, '}')
}

// gather returns the members' keys in order of appearance, and what each object
// has under them. If it has one twice, the first counts.
func gather(objects [][]byte) (keys []string, values map[string][][]byte) {
	values = make(map[string][][]byte)
	for _, o := range objects {
		seen := make(map[string]bool)
		wire.Members(o, func(key string, value []byte, _ int) {
			if seen[key] {
				return
			}
			seen[key] = true
			if values[key] == nil {
				keys = append(keys, key)
			}
			values[key] = append(values[key], value)
		})
	}
	return keys, values
}
