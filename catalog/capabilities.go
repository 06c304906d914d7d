package catalog

import (
	"slices"
	"sync"
	"time"

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

// declarations are what the backends declare about themselves and their lists. They are immutable.
type declarations struct {
	listings     []Listing
	byBackend    map[string]*Listing // by name of the backend
	capabilities [2]func() []byte    // incomplete and complete; computed on first use
}

func (d *declarations) set(listings []Listing) {
	d.listings = slices.Clone(listings)
	d.byBackend = make(map[string]*Listing, len(listings))
	for i := range d.listings {
		d.byBackend[d.listings[i].Backend] = &d.listings[i]
	}
	for i, complete := range []bool{false, true} {
		d.capabilities[i] = sync.OnceValue(func() []byte { return d.mergedCapabilities(complete) })
	}
}

// Capabilities returns the capabilities to declare to a client: the union of those of the backends
// and of alwaysDeclared. If complete is false, the capabilities of some backends are not known yet,
// and the result also contains the capabilities that these backends may have.
//
// Objects are merged member by member. Otherwise true takes precedence over false, any value over
// null, and the first value over the following ones. A value that occurs only once is not changed.
// MCP requires each capability to be an object. Other values are removed, because some clients
// would reject the whole response.
func (d *declarations) Capabilities(complete bool) []byte {
	if complete {
		return d.capabilities[1]()
	}
	return d.capabilities[0]()
}

func (d *declarations) mergedCapabilities(complete bool) []byte {
	all := [][]byte{[]byte(alwaysDeclared)}
	if !complete {
		all = append(all, []byte(possiblyDeclared))
	}
	for i := range d.listings {
		if c := d.listings[i].capabilities(); c != nil {
			all = append(all, c)
		}
	}
	return mergeObjects(all, 0)
}

// BackendsWith returns the backends that have a capability, in the order of the configuration.
// Example: BackendsWith("tasks", "list") returns the backends with tasks.list.
func (d *declarations) BackendsWith(capability ...string) []string {
	var all []string
	for i := range d.listings {
		if d.listings[i].hasCapability(capability...) {
			all = append(all, d.listings[i].Backend)
		}
	}
	return all
}

// HasCapability reports whether a backend has a capability, see [Declares].
func (d *declarations) HasCapability(backend string, capability ...string) bool {
	l := d.byBackend[backend]
	return l != nil && l.hasCapability(capability...)
}

// IsUnknown reports whether a list of a backend was not read yet.
func (d *declarations) IsUnknown(k Kind, backend string) bool {
	l := d.byBackend[backend]
	return l != nil && l.Unknown[k]
}

// HasSeveralBackends reports whether there is more than one backend, whether their lists are known
// or not.
func (d *declarations) HasSeveralBackends() bool { return len(d.listings) > 1 }

// Freshness returns the time to live of the merged list of a kind, and reports whether the list is
// private to the client that requested it. Only backends that have, or may have, entries of the
// kind count. ttl is the shortest time to live of their lists. It is 0, which means unspecified, if
// the time to live of one list is unspecified or if there is no such backend. The list is private
// if one of these backends has a private list.
func (d *declarations) Freshness(k Kind) (ttl time.Duration, private bool) {
	first := true
	for i := range d.listings {
		l := &d.listings[i]
		if !l.mayHave(k) {
			continue
		}
		if first || l.TTL[k] < ttl {
			ttl = l.TTL[k]
		}
		first = false
		private = private || l.Private[k]
	}
	return ttl, private
}

// mayHave reports whether the backend has entries of a kind, or may have some because it declares
// the capability or its capabilities are unknown.
func (l *Listing) mayHave(k Kind) bool {
	return l.Capabilities == nil || len(l.Items[k]) > 0 || l.hasCapability(kinds[k].capability)
}

// Announcements returns how often lists of a kind were read again because their backends had sent
// list_changed. If the number differs between two snapshots, that happened in between, or a backend
// was replaced or removed.
func (d *declarations) Announcements(k Kind) (n int) {
	for i := range d.listings {
		n += d.listings[i].Announcements[k]
	}
	return n
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
