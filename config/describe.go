package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Describe returns one line for each thing that a gateway would do by a file: the programs it
// would start, the URLs it would call, and the files it would write. References such as ${VAR}
// stay as they are written. Describe reports mistakes only if the file cannot be parsed: Load
// reports the others. The lines contain text of the file; the caller must escape control characters.
func Describe(path string, data []byte) ([]string, error) {
	r := newReader(path, func(name string) (string, bool) { return "${" + name + "}", true })
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), r); err != nil {
		return nil, err
	}
	out := settings{Config: Default(), Defaults: inbuilt()}
	if err := decode(k, &out); err != nil {
		return nil, err
	}
	c := &out.Config
	inherit(c, out.Defaults, r.places)
	var lines []string
	for _, w := range []struct{ does, value string }{
		{"writes audit records to", c.Audit.File}, {"writes its state to", c.State},
		{"listens on", c.Listen}, {"reads the key", c.TLS.Key},
	} {
		if w.value != "" && w.value != Nowhere {
			lines = append(lines, fmt.Sprintf("%s: %s", w.does, w.value))
		}
	}
	for _, b := range c.Backends {
		if !b.Enabled {
			continue
		}
		if b.Command != "" {
			line := "backend " + b.Name + " starts: " + strings.Join(quoted(append([]string{b.Command}, b.Args...)), " ")
			if b.Cwd != "" {
				line += " in " + b.Cwd
			}
			lines = append(lines, line)
			lines = append(lines, b.named("variables", append(slices.Sorted(maps.Keys(b.Env)), b.InheritEnv...))...)
		}
		if b.URL != "" {
			lines = append(lines, "backend "+b.Name+" calls: "+shownURL(b.URL))
			lines = append(lines, b.named("headers", slices.Sorted(maps.Keys(b.Headers)))...)
		}
	}
	return lines, nil
}

// named returns a line with the names of variables or headers. It does not show their values, which
// may be secrets.
func (b *Backend) named(what string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return []string{"backend " + b.Name + " gets the " + what + ": " + strings.Join(names, ", ")}
}

// shownURL returns a URL without its password and its query.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a valid URL)"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

// quoted returns words, with quotes around each that has a space in it or is empty.
func quoted(words []string) []string {
	for i, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\"'") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	return words
}
