package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Filter chooses among a backend's tools, prompts or resources, by globs (path.Match) on the
// names or URIs that the backend gave them. In a glob, / is a character like any other.
type Filter struct {
	Allow []string `koanf:"allow"` // none = all
	Deny  []string `koanf:"deny"`  // wins over Allow
}

// IsZero reports whether the filter permits everything.
func (f Filter) IsZero() bool { return len(f.Allow) == 0 && len(f.Deny) == 0 }

// Equal reports whether two filters have the same globs.
func (f Filter) Equal(other Filter) bool {
	return slices.Equal(f.Allow, other.Allow) && slices.Equal(f.Deny, other.Deny)
}

// Permits reports whether the filter permits the tool or prompt with this name.
func (f Filter) Permits(name string) bool {
	return (len(f.Allow) == 0 || matchesAny(f.Allow, name)) && !matchesAny(f.Deny, name)
}

// PermitsURI reports whether the filter permits the resource with this URI, or the template with
// this text. A URI can be written in several ways, which a server may take for the same resource.
// Deny therefore applies to the URI as it is written and to its plain spellings, in upper or
// lower case. Allow has to permit both the URI as it is written and its plain spellings. A URI that
// programs read in different ways is not permitted, see spell.
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

// Unmatched returns the globs of the filter under key that match none of the names, each as in
// `tools.deny "now*"`: they were probably meant for something.
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

// escapeSlashes keeps * and ? from stopping at a slash: tool names are no paths.
func escapeSlashes(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// Filters are the filters of a backend together.
type Filters struct{ Tools, Prompts, Resources Filter }

// All returns the filters in an order that is always the same.
func (f Filters) All() []Filter { return []Filter{f.Tools, f.Prompts, f.Resources} }

// Filters returns the filters of the backend.
func (b *Backend) Filters() Filters { return Filters{b.Tools, b.Prompts, b.Resources} }

// Unfiltered returns the backend without its filters and its instructions, which both are taken
// over while it runs.
func (b Backend) Unfiltered() Backend {
	b.Instructions = ""
	b.Tools, b.Prompts, b.Resources = Filter{}, Filter{}, Filter{}
	return b
}
