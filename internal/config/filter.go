package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Filter selects tools, prompts or resources of a backend by globs (path.Match) on the names or
// URIs that the backend uses. In a glob, / is an ordinary character.
type Filter struct {
	Allow []string `koanf:"allow"` // empty = all
	Deny  []string `koanf:"deny"`  // has precedence over Allow
}

// IsZero reports whether the filter permits everything.
func (f Filter) IsZero() bool { return len(f.Allow) == 0 && len(f.Deny) == 0 }

// Equal reports whether two filters have the same globs in the same order.
func (f Filter) Equal(other Filter) bool {
	return slices.Equal(f.Allow, other.Allow) && slices.Equal(f.Deny, other.Deny)
}

// Permits reports whether the filter permits the tool or prompt with this name.
func (f Filter) Permits(name string) bool {
	return (len(f.Allow) == 0 || matchesAny(f.Allow, name)) && !matchesAny(f.Deny, name)
}

// PermitsURI reports whether the filter permits the resource with this URI, or the template with
// this text. A server may treat several spellings of a URI as the same resource. Therefore Deny
// applies to the URI as written and to all its normalized spellings, ignoring case. Allow must
// permit the URI as written and its equivalent spellings; it need not permit the lenient ones. A
// URI that programs interpret in different ways (see spellingsOf) is permitted only by an empty
// filter.
func (f Filter) PermitsURI(uri string) bool {
	if f.IsZero() {
		return true
	}
	plain, ok := spellingsOf(uri)
	if !ok {
		return false
	}
	for _, glob := range f.Deny {
		globs := []string{strings.ToLower(glob), strings.ToLower(normalizeGlob(glob))}
		for _, one := range slices.Concat([]string{uri}, plain.equivalent, plain.lenient) {
			if matchesAny(globs, strings.ToLower(one)) {
				return false
			}
		}
	}
	if len(f.Allow) == 0 {
		return true
	}
	allow := slices.Clone(f.Allow)
	for _, glob := range f.Allow {
		allow = append(allow, normalizeGlob(glob))
	}
	for _, one := range plain.equivalent {
		if !matchesAny(allow, one) {
			return false
		}
	}
	return matchesAny(f.Allow, uri)
}

// Unmatched returns the globs of the filter under key that match none of the names; see the
// function Unmatched.
func (f Filter) Unmatched(key string, names []string) []string {
	return append(Unmatched(key+".allow", f.Allow, names),
		Unmatched(key+".deny", f.Deny, names)...)
}

// Unmatched returns the globs under key that match none of the names, each in the form `tools.deny
// "now*"`. Such a glob is probably a mistake.
func Unmatched(key string, globs, names []string) (all []string) {
	for _, glob := range globs {
		matches := func(name string) bool { return matchesAny([]string{glob}, name) }
		if !slices.ContainsFunc(names, matches) {
			all = append(all, fmt.Sprintf("%s %q", key, glob))
		}
	}
	return all
}

func matchesAny(globs []string, name string) bool {
	for _, glob := range globs {
		if ok, _ := path.Match(escapeSlashes(glob), escapeSlashes(name)); ok {
			return true
		}
	}
	return false
}

// escapeSlashes replaces slashes, so that * and ? also match slashes: names of tools are not paths.
func escapeSlashes(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// ToolSettings are the keys under tools of a backend.
type ToolSettings struct {
	Allow []string `koanf:"allow"` // see Filter
	Deny  []string `koanf:"deny"`
	// Confirm contains globs like those of a Filter: a call of a matching tool runs only when the
	// user of the client has confirmed it.
	Confirm []string `koanf:"confirm"`
	Pin     Pin      `koanf:"pin"`
}

// A Pin determines the effect of the lock file on a backend. The lock file contains the approved
// definitions of tools, and the backend of each exposed name.
type Pin string

const (
	PinOff   Pin = "off"   // the lock file has no effect
	PinWarn  Pin = "warn"  // new and changed tools, and names of other backends, are logged
	PinBlock Pin = "block" // new and changed tools are hidden, and names of other backends not used
)

// Filter returns the filter of the tools, by name.
func (t ToolSettings) Filter() Filter { return Filter{t.Allow, t.Deny} }

// Filters are the filters of a backend, and the globs of its tools whose calls must be confirmed.
type Filters struct {
	Tools, Prompts, Resources Filter
	Confirm                   []string
}

// Equal reports whether two Filters have the same globs in the same order.
func (f Filters) Equal(other Filters) bool {
	return f.Tools.Equal(other.Tools) && f.Prompts.Equal(other.Prompts) &&
		f.Resources.Equal(other.Resources) && slices.Equal(f.Confirm, other.Confirm)
}

// MustConfirm reports whether a call of the tool with this name must be confirmed.
func (f *Filters) MustConfirm(name string) bool { return matchesAny(f.Confirm, name) }

// Filters returns the filters of the backend.
func (b *Backend) Filters() Filters {
	return Filters{b.Tools.Filter(), b.Prompts, b.Resources, b.Tools.Confirm}
}

// WithoutRuntimeKeys returns the backend without the keys that can change while it runs: its
// tools, prompts, resources, rate and instructions.
func (b Backend) WithoutRuntimeKeys() Backend {
	b.Instructions, b.Rate = "", Rate{}
	b.Tools, b.Prompts, b.Resources = ToolSettings{}, Filter{}, Filter{}
	return b
}
