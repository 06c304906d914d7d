package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Tools chooses among a backend's tools, by globs (path.Match) on the names
// the backend gave them. In a name, / is a character like any other.
type Tools struct {
	Allow []string `koanf:"allow"` // none = all
	Deny  []string `koanf:"deny"`  // wins over Allow
}

// Permits tells whether the tool may be listed and called.
func (t Tools) Permits(name string) bool {
	return (len(t.Allow) == 0 || matchAny(t.Allow, name)) && !matchAny(t.Deny, name)
}

// Unmatched returns the globs that match none of the names, each as in
// `tools.deny "now*"`: they were probably meant for something.
func (t Tools) Unmatched(names []string) []string {
	var all []string
	for _, list := range []struct {
		key   string
		globs []string
	}{{"allow", t.Allow}, {"deny", t.Deny}} {
		for _, glob := range list.globs {
			matches := func(name string) bool { return matchAny([]string{glob}, name) }
			if !slices.ContainsFunc(names, matches) {
				all = append(all, fmt.Sprintf("tools.%s %q", list.key, glob))
			}
		}
	}
	return all
}

func matchAny(globs []string, name string) bool {
	for _, glob := range globs {
		if ok, _ := path.Match(flat(glob), flat(name)); ok {
			return true
		}
	}
	return false
}

// flat keeps * and ? from stopping at a slash: tool names are no paths.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
