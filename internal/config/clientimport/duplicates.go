package clientimport

import (
	"slices"
	"strings"

	"mcpgateway/internal/config"
)

// Several clients may have the same server, or two accounts at one, and names that
// are taken.

// kin looks for s in other files. twin is the same server in all that it is told.
// other has its name and runs the same, but is told something else, as for another
// account: both are kept.
func (im *importer) kin(s server) (twin, other *server) {
	for i := range im.out.servers {
		o := &im.out.servers[i]
		switch {
		case s.target != o.target || s.file == o.file:
		case s.differs(o) == "":
			return o, nil
		case s.theirName == o.theirName && other == nil:
			other = o
		}
	}
	return nil, other
}

// differs names what s and o, which run the same, are told differently; "" = they
// are one. How long they may take does not count.
func (s *server) differs(o *server) string {
	var all []string
	for _, part := range []struct {
		name string
		same bool
	}{
		{"env", sameTable(s.env, o.env) && s.envFile == o.envFile},
		{"inherit_env", slices.Equal(s.inherit, o.inherit)},
		{"transport", s.transport == o.transport},
		{"headers", sameTable(s.headers, o.headers)},
		{"cwd", s.cwd == o.cwd},
		{"tools", slices.Equal(s.tools.Allow, o.tools.Allow) && slices.Equal(s.tools.Deny, o.tools.Deny)},
	} {
		if !part.same {
			all = append(all, part.name)
		}
	}
	return strings.Join(all, ", ")
}

func sameTable(a, b []named) bool {
	sorted := func(all []named) []named {
		return slices.SortedStableFunc(slices.Values(all), func(a, b named) int { return strings.Compare(a.name, b.name) })
	}
	return slices.Equal(sorted(a), sorted(b))
}

// lost tells what becomes of s, left out for its twin o, beyond that.
func (s *server) lost(o *server) string {
	lost := ""
	if s.start != o.start || s.call != o.call {
		lost += ", with other timeouts"
	}
	if !s.disabled && o.disabled {
		lost += ", where it is disabled"
	}
	return lost
}

// nameIt gives s a name that fits and is not taken. other is a server that it
// would be if it were told the same.
func (im *importer) nameIt(s, other *server) {
	fit := config.UsableName(s.theirName, map[string]bool{})
	if im.names[fit] && s.client.IsNamed() {
		fit += "-" + s.client.ID
	}
	s.name = config.UsableName(fit, im.names)
	switch {
	case s.name == s.theirName:
	case other != nil:
		im.note("%s: %q is called %s here: it differs in %s from %s of %s", s.file, s.theirName, s.name, s.differs(other), other.name, other.file)
	default:
		im.note("%s: %q is called %s here", s.file, s.theirName, s.name)
	}
}
