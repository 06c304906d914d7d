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

// Unmatched returns the globs of the filter under key that match none of the names, each in the
// form `tools.deny "now*"`. Such a glob is probably a mistake.
func (f Filter) Unmatched(key string, names []string) []string {
	var all []string
	for _, list := range []struct {
		key   string
		globs []string
	}{{"allow", f.Allow}, {"deny", f.Deny}} {
		for _, glob := range list.globs {
			matches := func(name string) bool { return matchesAny([]string{glob}, name) }
			if !slices.ContainsFunc(names, matches) {
				all = append(all, fmt.Sprintf("%s.%s %q", key, list.key, glob))
			}
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

// Filters are the filters of a backend.
type Filters struct{ Tools, Prompts, Resources Filter }

// All returns the filters in a fixed order.
func (f Filters) All() []Filter { return []Filter{f.Tools, f.Prompts, f.Resources} }

// Filters returns the filters of the backend.
func (b *Backend) Filters() Filters { return Filters{b.Tools, b.Prompts, b.Resources} }

// WithoutRuntimeKeys returns the backend without the keys that can change while it runs: its
// filters and instructions.
func (b Backend) WithoutRuntimeKeys() Backend {
	b.Instructions = ""
	b.Tools, b.Prompts, b.Resources = Filter{}, Filter{}, Filter{}
	return b
}
