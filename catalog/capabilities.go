package catalog

import (
	"slices"

	"mcpgateway/internal/wire"
)

const (
	// maxCapabilities bounds the capabilities of one backend, in bytes. Longer capabilities are
	// ignored.
	maxCapabilities = 64 << 10
	// maxMergeDepth bounds the depth of merging. At this depth the first value is used unchanged.
	maxMergeDepth = 8
)

// Capabilities that are declared even if no backend has them, because a session cannot negotiate
// again when a backend is added. alwaysDeclared is always declared. possiblyDeclared is declared
// while the capabilities of some backends are unknown.
const (
	alwaysDeclared = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
		`"resources":{"listChanged":true}}`
	possiblyDeclared = `{"resources":{"subscribe":true},"logging":{},"completions":{},` +
		`"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`
)

// Capabilities returns the capabilities to declare to a client: the union of those of the backends
// and of alwaysDeclared. If complete is false, the capabilities of some backends are not known yet,
// and the result also contains the capabilities that these backends may have.
//
// Objects are merged member by member. Otherwise true takes precedence over false, any value over
// null, and the first value over the following ones. A value that occurs only once is not changed.
// MCP requires each capability to be an object. Other values are removed, because some clients
// would reject the whole response.
func (s *Snapshot) Capabilities(complete bool) []byte {
	if complete {
		return s.capabilities[1]()
	}
	return s.capabilities[0]()
}

func (s *Snapshot) mergedCapabilities(complete bool) []byte {
	all := [][]byte{[]byte(alwaysDeclared)}
	if !complete {
		all = append(all, []byte(possiblyDeclared))
	}
	for i := range s.listings {
		if c := s.listings[i].capabilities(); c != nil {
			all = append(all, c)
		}
	}
	return mergeObjects(all, 0)
}

// BackendsWith returns the backends that have a capability, in the order of the configuration.
// Example: BackendsWith("tasks", "list") returns the backends with tasks.list.
func (s *Snapshot) BackendsWith(capability ...string) []string {
	var all []string
	for i := range s.listings {
		if s.listings[i].hasCapability(capability...) {
			all = append(all, s.listings[i].Backend)
		}
	}
	return all
}

// HasCapability reports whether a backend has a capability, see [Declares].
func (s *Snapshot) HasCapability(backend string, capability ...string) bool {
	l := s.byBackend[backend]
	return l != nil && l.hasCapability(capability...)
}

// capabilities returns the capabilities of the backend, nil if they are absent, invalid or too
// long.
func (l *Listing) capabilities() []byte {
	if len(l.Capabilities) > maxCapabilities ||
		!wire.Members(l.Capabilities, func(string, []byte, int) {}) {
		return nil
	}
	return l.Capabilities
}

func (l *Listing) hasCapability(path ...string) bool { return Declares(l.capabilities(), path...) }

// Declares reports whether a capabilities object has the capability at this path. A capability
// that is false, null, or a duplicate counts as absent.
func Declares(capabilities []byte, path ...string) bool {
	value, _ := wire.Lookup(capabilities, path...)
	return !wire.IsNull(value) && string(value) != "false"
}

// mergeValues merges at least one value.
func mergeValues(values [][]byte, depth int) []byte {
	first := values[0]
	for _, v := range values[1:] {
		if wire.IsNull(first) || string(first) == "false" && string(v) == "true" {
			first = v
		}
	}
	objects := slices.DeleteFunc(values, isNotObject)
	if isNotObject(first) || len(objects) == 1 || depth == maxMergeDepth {
		return first
	}
	return mergeObjects(objects, depth)
}

func isNotObject(value []byte) bool { return !wire.IsObject(value) }

func mergeObjects(objects [][]byte, depth int) []byte {
	keys, values := collectMembers(objects)
	b := []byte{'{'}
	for _, key := range keys {
		all := values[key]
		if depth == 0 {
			all = slices.DeleteFunc(all, isNotObject)
		}
		if len(all) == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, wire.Quote(key)...), ':')
		b = append(b, mergeValues(all, depth+1)...)
	}
	return append(b, '}')
}

// collectMembers returns the keys of the members in order of appearance, and the values for each
// key. If a key occurs twice in one object, only its first value is collected.
func collectMembers(objects [][]byte) (keys []string, values map[string][][]byte) {
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
