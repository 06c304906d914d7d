package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Changes is what differs between two configurations, by names and keys. It holds
// no values: they may be secrets.
type Changes struct {
	// Of backends, each in one of these, in the order of the newer configuration; those that
	// are gone come in the order of the older.
	Added, Removed    []string
	Enabled, Disabled []string // whose enabled differs, whatever else does
	Changed           []BackendChange
	Unchanged         []string // enabled, and the same; or only held
	UnchangedDisabled []string // not enabled, and the same

	// Held are those of Changed and Kept whose newer entry is misconfigured, while the older one is
	// not: the backend stays what it was, except for its filters.
	Held []string

	// Inactive are those of Added, Removed and Changed that are not enabled, nor were.
	Inactive []string

	// Moved are backends that have another place among those that both have. A few are
	// named that explain it.
	Moved []string

	Applied     []string // other keys that a reload takes over
	NeedRestart []string // other keys, for which the gateway has to be started anew
}

// A BackendChange is a backend that is not what it was.
type BackendChange struct {
	Name string
	Keys []string // as they stand in the file: command, env.DEBUG, tools.allow

	Effect Effect
}

// InPlace reports whether the change is taken over without a restart of the server: only filters
// and instructions differ.
func (c BackendChange) InPlace() bool {
	return !slices.ContainsFunc(c.Keys, func(key string) bool { return !isFilter(key) && key != "instructions" })
}

// An Effect is what a change does to a server.
type Effect int

const (
	InPlace   Effect = iota // nothing; that of a backend that is not enabled, too
	Restarts                // it is started anew
	Starts                  // it was misconfigured, and is not any more
	Stops                   // it is misconfigured, and was not
	StaysDown               // it was and is misconfigured
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

// misconfigured is the key of the problems with a backend's variables.
const misconfigured = "misconfigured"

// isFilter reports whether a key of a backend says what clients may use of it.
func isFilter(key string) bool {
	first, _, _ := strings.Cut(key, ".")
	return first == "tools" || first == "prompts" || first == "resources"
}

// AnyBackend reports whether any backend differs that is enabled or was, or the order does.
func (c Changes) AnyBackend() bool {
	return len(c.Added)+len(c.Removed)+len(c.Enabled)+len(c.Disabled)+len(c.Changed)+len(c.Moved) > 0
}

// IsInactive reports whether a backend that differs runs neither before nor after.
func (c Changes) IsInactive(name string) bool { return slices.Contains(c.Inactive, name) }

// MarkInactive returns the names, and says of those that are off that they are.
func (c Changes) MarkInactive(names []string) []string {
	marked := slices.Clone(names)
	for i, name := range names {
		if c.IsInactive(name) {
			marked[i] += " (disabled)"
		}
	}
	return marked
}

// IsEmpty reports whether nothing differs.
func (c Changes) IsEmpty() bool {
	return !c.AnyBackend() && len(c.Applied)+len(c.NeedRestart)+len(c.Held) == 0
}

// Diff says what becomes different when a gateway that runs by old loads next.
func Diff(old, next *Config) Changes { return NewDigest(old, "").Diff(next) }

// A reloadEffect is what becomes of a key that differs, when a running gateway loads it.
type reloadEffect int

const (
	needsRestart      reloadEffect = iota // it stays what it was until the gateway is started anew
	live                                  // it is what it says from then on
	liveIfBothSet                         // likewise, if it was there before and is now
	liveUnlessRemoved                     // likewise, unless it was there before and is not now
)

// reloadEffects says for each key outside of backends whether a reload takes it over. What
// shapes the gateway as a whole does not change while it runs: where it is reached, the
// files that it has open, the sizes by which its parts were built. That there are
// tokens, or TLS, does not change either, so that a door which was closed is not opened by
// half a file.
var reloadEffects = map[string]reloadEffect{
	"state":  needsRestart,
	"listen": needsRestart,

	"auth.tokens": liveUnlessRemoved,
	"tls.cert":    liveIfBothSet,
	"tls.key":     liveIfBothSet,
	"origins":     live,
	"hosts":       live,

	"instructions": live,

	"catalog.prefix":     live,
	"catalog.separator":  live,
	"catalog.name_limit": live,
	"catalog.wait":       live,

	"log.level":  live,
	"log.format": needsRestart,
	"log.stderr": needsRestart,

	"audit.file":     needsRestart,
	"audit.payloads": needsRestart,

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

// isLive reports whether a reload takes the key over; was and is say whether it has a value.
func (f reloadEffect) isLive(was, is bool) bool {
	switch f {
	case live:
		return true
	case liveIfBothSet:
		return was && is
	case liveUnlessRemoved:
		return is || !was
	}
	return false
}

// Effective returns what a gateway runs by that ran by c and has loaded next, which differs by changes: all
// of next but the keys that need a restart, and the entries of backends that are held. What next
// shares with it is not copied.
func (c *Config) Effective(next *Config, changes Changes) *Config {
	out := *next
	for _, key := range changes.NeedRestart {
		fieldByKey(reflect.ValueOf(&out).Elem(), key).Set(fieldByKey(reflect.ValueOf(c).Elem(), key))
	}
	if len(changes.Held) > 0 {
		out.Backends = slices.Clone(next.Backends)
		out.Expanded = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.Expanded, next.Expanded))))
	}
	for i, b := range out.Backends {
		if slices.Contains(changes.Held, b.Name) {
			was := c.Backends[slices.IndexFunc(c.Backends, func(b Backend) bool { return b.Name == out.Backends[i].Name })]
			was.Tools, was.Prompts, was.Resources = b.Tools, b.Prompts, b.Resources
			out.Backends[i] = was
		}
	}
	out.StateDir = c.StateDir
	out.Limits.Page = min(out.Limits.Page, out.Limits.Message)
	return &out
}

// Diff is [Diff] with an older configuration of which only the digest is known. Keys that
// are named in but are left out.
func (d Digest) Diff(next *Config, but ...string) Changes {
	var c Changes
	now := NewDigest(next, d.Salt)
	for _, key := range differing(d.Keys, now.Keys) {
		was, is := d.Keys[key] != "", now.Keys[key] != ""
		switch {
		case slices.Contains(but, key):
		case reloadEffects[key].isLive(was, is):
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

// backends compares the backends. Those in mayHold are held if they were not misconfigured.
func (c *Changes) backends(old, now []BackendDigest, mayHold map[string]bool) {
	before := make(map[string]int, len(old))
	for i, b := range old {
		before[b.Name] = i
	}
	var places []int // in old, of those in both
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
		if _, gone := before[b.Name]; gone {
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

// differing returns the keys whose sums are not the same in both, in order.
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

// ascending returns the numbers of a longest ascending run within the list, which need
// not be neighbours; all numbers are different.
func ascending(list []int) map[int]bool {
	var tails []int                  // the end of the best run of each length, as an index of list
	before := make([]int, len(list)) // the index before each in its run, -1 = none
	for i, n := range list {
		at, _ := slices.BinarySearchFunc(tails, n, func(j, n int) int { return cmp.Compare(list[j], n) })
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
