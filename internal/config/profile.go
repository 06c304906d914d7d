package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Profile is a named view of the backends: a client with this profile can list, call, read and
// complete only what the profile permits. The filters of the backends apply as well.
type Profile struct {
	// Backends are the names of the backends; nil = all.
	Backends  []string     `koanf:"backends"`
	Tools     ProfileTools `koanf:"tools"`     // by the backend's own name
	Prompts   Filter       `koanf:"prompts"`   // by the backend's own name
	Resources Filter       `koanf:"resources"` // by URI or URI template
}

// ProfileTools selects the tools of a Profile.
type ProfileTools struct {
	Allow []string `koanf:"allow"` // see [Filter]
	Deny  []string `koanf:"deny"`
	// ReadOnly leaves out the tools that do not have the annotation readOnlyHint: true. The
	// annotation is a claim of the server.
	ReadOnly bool `koanf:"read_only"`
}

// Filter returns the filter by name.
func (t ProfileTools) Filter() Filter { return Filter{Allow: t.Allow, Deny: t.Deny} }

// profiles checks the profiles.
func (c *checker) profiles(cfg *Config) {
	var names []string
	for _, b := range cfg.Backends {
		names = append(names, b.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		at := "profiles." + name
		p := cfg.Profiles[name]
		if !backendName().MatchString(name) {
			c.fail(at, "must be lowercase letters, digits, _ and -, a letter or digit first",
				"write it like read-only")
			continue
		}
		if c.isGiven(at+".backends") && len(p.Backends) == 0 && !c.reported[at+".backends"] {
			c.fail(at+".backends", "is empty", "leave the key out to permit all backends")
		}
		for i, b := range p.Backends {
			if here := fmt.Sprintf("%s.backends[%d]", at, i); !slices.Contains(names, b) &&
				!c.reported[here] {
				hint := "the names are " + strings.Join(names, ", ")
				if near, ok := Nearest(b, names); ok {
					hint = "did you mean " + near + "?"
				}
				c.fail(here, fmt.Sprintf("there is no backend %q", b), hint)
			}
		}
		c.filter(p.Tools.Filter(), at+".tools")
		c.filter(p.Prompts, at+".prompts")
		c.filter(p.Resources, at+".resources")
	}
}

// profile checks the name of a profile that a token selects.
func (c *checker) profile(cfg *Config, name, at string) {
	names := slices.Sorted(maps.Keys(cfg.Profiles))
	_, known := cfg.Profiles[name]
	switch {
	case c.reported[at] || known:
	case name == "":
		c.fail(at, "is empty", "leave the key out")
	default:
		hint := "define it in profiles, or leave the key out"
		if near, ok := Nearest(name, names); ok {
			hint = "did you mean " + near + "?"
		}
		c.fail(at, fmt.Sprintf("there is no profile %q", name), hint)
	}
}
