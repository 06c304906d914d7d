package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Changes is the difference between two configurations, as names and keys. It contains no values,
// because they may be secrets.
type Changes struct {
	// The lists below contain names of backends. Each name is in exactly one of the lists from
	// Added to UnchangedDisabled. The lists are in the order of the newer configuration, Removed in
	// the order of the older configuration.
	Added, Removed    []string
	Enabled, Disabled []string // enabled differs; other keys may also differ
	Changed           []BackendChange
	Unchanged         []string // enabled and equal, or Held without other changes
	UnchangedDisabled []string // disabled and equal

	// Held are backends in Changed or Unchanged whose older entry is valid and whose newer entry is
	// misconfigured, but not PermissionUnknown. They keep the older entry, except for its filters.
	Held []string

	// Inactive are the disabled backends in Added and Removed, and the backends in Changed that are
	// disabled before and after.
	Inactive []string

	// Moved are backends whose position among the common backends differs: a smallest set of
	// backends that explains the new order.
	Moved []string

	Applied     []string // other keys that a reload applies
	NeedRestart []string // other keys that take effect after a restart of the gateway
}

// A BackendChange describes a backend that has changed.
type BackendChange struct {
	Name string
	Keys []string // keys as written in the file: command, env.DEBUG, tools.allow

	Effect Effect
}

// InPlace reports whether the change is applied without a restart of the server: only filters,
// the rate and instructions differ.
func (c BackendChange) InPlace() bool {
	return !slices.ContainsFunc(c.Keys, func(key string) bool {
		return !isFilter(key) && key != "instructions" && !strings.HasPrefix(key, "rate.")
	})
}

// An Effect is the effect of a change on a server.
type Effect int

const (
	InPlace   Effect = iota // none; also for a disabled backend
	Restarts                // restarted
	Starts                  // started: it was misconfigured and is valid now
	Stops                   // stopped: it was valid and is misconfigured now
	StaysDown               // not started: it was misconfigured and still is
)

func (e Effect) String() string {
	return [...]string{"in place", "restarts", "starts", "stops", "stays down"}[e]
}

func (c BackendChange) effect(wasWrong, isWrong bool) Effect {
	switch {
	case wasWrong && isWrong:
		return StaysDown
	case isWrong:
		return Stops
	case wasWrong:
		return Starts
	case c.InPlace():
		return InPlace
	}
	return Restarts
}

// misconfigured is the key of [Backend.Misconfigured] in a digest.
const misconfigured = "misconfigured"

// isFilter reports whether a key of a backend restricts its tools, prompts or resources; tools.pin
// also restricts tools.
func isFilter(key string) bool {
	first, _, _ := strings.Cut(key, ".")
	return first == "tools" || first == "prompts" || first == "resources"
}

// AnyBackend reports whether the order of the backends has changed, or any backend that is not in
// Unchanged or UnchangedDisabled.
func (c Changes) AnyBackend() bool {
	return len(c.Added)+len(c.Removed)+len(c.Enabled)+len(c.Disabled)+len(c.Changed)+
		len(c.Moved) > 0
}

// IsInactive reports whether a backend is in Inactive.
func (c Changes) IsInactive(name string) bool { return slices.Contains(c.Inactive, name) }

// MarkInactive returns the names, and appends a mark to the names that are in Inactive.
func (c Changes) MarkInactive(names []string) []string {
	marked := slices.Clone(names)
	for i, name := range names {
		if c.IsInactive(name) {
			marked[i] += " (disabled)"
		}
	}
	return marked
}

// IsEmpty reports whether nothing has changed.
func (c Changes) IsEmpty() bool {
	return !c.AnyBackend() && len(c.Applied)+len(c.NeedRestart)+len(c.Held) == 0
}

// Diff returns the changes between the running configuration old and the newly loaded configuration
// next.
func Diff(old, next *Config) Changes { return NewDigest(old, "").Diff(next) }

// A reloadEffect determines whether a reload applies a changed key.
type reloadEffect int

const (
	needsRestart      reloadEffect = iota // the running gateway keeps the old value
	live                                  // the new value is applied
	liveIfBothSet                         // applied if both the old and the new value are set
	liveUnlessRemoved                     // applied unless the value was removed
)

// reloadEffects contains the effect of each key outside of backends. A running gateway does not
// change its addresses, its open files and the limits with which its components were created. A
// reload also does not add or remove TLS or remove all tokens or OAuth, so that an incomplete file
// cannot remove access restrictions.
var reloadEffects = map[string]reloadEffect{
	"state": needsRestart,

	"env_file": live, // its effect is that of the values in it
	"listen":   needsRestart,

	"auth.tokens":     liveUnlessRemoved,
	"auth.public_url": needsRestart,

	"auth.oauth.issuer":                      liveUnlessRemoved,
	"auth.oauth.audience":                    liveUnlessRemoved,
	"auth.oauth.scopes":                      liveUnlessRemoved,
	"auth.oauth.profiles":                    liveUnlessRemoved,
	"auth.oauth.allow_private":               live,
	"auth.oauth.introspection.client_id":     liveUnlessRemoved,
	"auth.oauth.introspection.client_secret": liveUnlessRemoved,

	"tls.cert": liveIfBothSet,
	"tls.key":  liveIfBothSet,
	"origins":  live,
	"hosts":    live,

	"instructions": live,
	"profiles":     live,

	"catalog.prefix":     live,
	"catalog.separator":  live,
	"catalog.name_limit": live,
	"catalog.wait":       live,

	"log.level":  live,
	"log.format": needsRestart,
	"log.stderr": needsRestart,

	"audit.file":       needsRestart,
	"audit.payloads":   needsRestart,
	"audit.max_size":   live,
	"audit.max_age":    live,
	"audit.keep.files": live,
	"audit.keep.age":   live,
	"audit.keep.size":  live,
	"audit.compress":   live,
	"audit.chain":      live,

	"admin.listen": needsRestart,

	"otel.endpoint": needsRestart,
	"otel.headers":  needsRestart,
	"otel.sample":   needsRestart,

	"limits.message":        needsRestart,
	"limits.in_flight":      needsRestart,
	"limits.page":           live,
	"limits.sessions":       needsRestart,
	"limits.session_idle":   needsRestart,
	"limits.events":         needsRestart,
	"limits.outbox":         needsRestart,
	"limits.start_parallel": needsRestart,
	"limits.drain":          needsRestart,
}

// effectOf returns the effect of a key outside of backends. Profiles and otel.headers have keys
// with names that the user chooses.
func effectOf(key string) reloadEffect {
	if first, _, _ := strings.Cut(key, "."); first == "profiles" {
		key = first
	}
	if strings.HasPrefix(key, "otel.headers.") {
		key = "otel.headers"
	}
	return reloadEffects[key]
}

// isLive reports whether a reload applies the key. oldSet and newSet are true if the old and the
// new value are set.
func (f reloadEffect) isLive(oldSet, newSet bool) bool {
	switch f {
	case live:
		return true
	case liveIfBothSet:
		return oldSet && newSet
	case liveUnlessRemoved:
		return newSet || !oldSet
	}
	return false
}

// Effective returns the configuration in force after a gateway with configuration c has reloaded
// the configuration next. The result is next, with these exceptions: keys that need a restart keep
// the values of c; held backends keep the entries of c with the filters of next; limits.page is at
// most limits.message. changes is the difference between c and next. The result shares memory with
// next.
func (c *Config) Effective(next *Config, changes Changes) *Config {
	out := *next
	for _, key := range changes.NeedRestart {
		fieldByKey(reflect.ValueOf(&out).Elem(),
			key).Set(fieldByKey(reflect.ValueOf(c).Elem(), key))
	}
	if len(changes.Held) > 0 {
		out.Backends = slices.Clone(next.Backends)
		out.Expanded = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.Expanded,
			next.Expanded))))
	}
	for i, b := range out.Backends {
		if slices.Contains(changes.Held, b.Name) {
			was := c.Backends[slices.IndexFunc(c.Backends,
				func(b Backend) bool { return b.Name == out.Backends[i].Name })]
			was.Tools, was.Prompts, was.Resources = b.Tools, b.Prompts, b.Resources
			out.Backends[i] = was
		}
	}
	out.StateDir = c.StateDir
	out.Limits.Page = min(out.Limits.Page, out.Limits.Message)
	return &out
}

// Diff returns the changes between an older configuration with the digest d and the configuration
// next. It ignores the keys in ignored.
func (d Digest) Diff(next *Config, ignored ...string) Changes {
	var c Changes
	now := NewDigest(next, d.Salt)
	for _, key := range differing(d.Keys, now.Keys) {
		oldSet, newSet := d.Keys[key] != "", now.Keys[key] != ""
		switch {
		case slices.Contains(ignored, key):
		case effectOf(key).isLive(oldSet, newSet):
			c.Applied = append(c.Applied, key)
		default:
			c.NeedRestart = append(c.NeedRestart, key)
		}
	}
	held := make(map[string]bool)
	for _, b := range next.Backends {
		held[b.Name] = b.Misconfigured != "" && !b.PermissionUnknown
	}
	c.backends(d.Backends, now.Backends, held)
	return c
}

// backends compares the backends. A backend in mayHold is held if it was enabled before and its
// older entry is valid.
func (c *Changes) backends(old, now []BackendDigest, mayHold map[string]bool) {
	before := make(map[string]int, len(old))
	for i, b := range old {
		before[b.Name] = i
	}
	var places []int // indexes in old of the backends that are in both
	for _, b := range now {
		i, ok := before[b.Name]
		if !ok {
			c.Added = append(c.Added, b.Name)
			c.noteInactive(b)
			continue
		}
		delete(before, b.Name)
		places = append(places, i)
		c.backend(old[i], b, mayHold[b.Name])
	}
	for _, b := range old {
		if _, removed := before[b.Name]; removed {
			c.Removed = append(c.Removed, b.Name)
			c.noteInactive(b)
		}
	}
	stay := ascending(places)
	for _, i := range places {
		if !stay[i] {
			c.Moved = append(c.Moved, old[i].Name)
		}
	}
}

func (c *Changes) backend(was, is BackendDigest, mayHold bool) {
	keys := differing(was.Keys, is.Keys)
	_, wasWrong := was.Keys[misconfigured]
	_, isWrong := is.Keys[misconfigured]
	if was.Enabled && is.Enabled && !wasWrong && isWrong && mayHold {
		c.Held = append(c.Held, is.Name)
		keys = slices.DeleteFunc(keys, func(key string) bool { return !isFilter(key) })
		isWrong = false
	}
	switch {
	case is.Enabled && !was.Enabled:
		c.Enabled = append(c.Enabled, is.Name)
	case was.Enabled && !is.Enabled:
		c.Disabled = append(c.Disabled, is.Name)
	case len(keys) > 0:
		change := BackendChange{Name: is.Name, Keys: keys}
		if is.Enabled {
			change.Effect = change.effect(wasWrong, isWrong)
		}
		c.Changed = append(c.Changed, change)
		c.noteInactive(is)
	case is.Enabled:
		c.Unchanged = append(c.Unchanged, is.Name)
	default:
		c.UnchangedDisabled = append(c.UnchangedDisabled, is.Name)
	}
}

func (c *Changes) noteInactive(b BackendDigest) {
	if !b.Enabled {
		c.Inactive = append(c.Inactive, b.Name)
	}
}

// differing returns the keys whose sums differ, sorted.
func differing(a, b map[string]string) []string {
	var keys []string
	for key, sum := range a {
		if b[key] != sum {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, both := a[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// ascending returns the numbers of a longest ascending subsequence of list. The numbers in list are
// distinct.
func ascending(list []int) map[int]bool {
	var tails []int                  // by length: index of the last number
	before := make([]int, len(list)) // by index: the previous index in its subsequence, -1 = none
	for i, n := range list {
		at, _ := slices.BinarySearchFunc(tails, n,
			func(j, n int) int { return cmp.Compare(list[j], n) })
		before[i] = -1
		if at > 0 {
			before[i] = tails[at-1]
		}
		tails = append(tails[:at:at], append([]int{i}, tails[min(at+1, len(tails)):]...)...)
	}
	run := make(map[int]bool, len(tails))
	if len(tails) > 0 {
		for i := tails[len(tails)-1]; i >= 0; i = before[i] {
			run[list[i]] = true
		}
	}
	return run
}
