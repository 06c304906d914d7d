package clientimport

import (
	"slices"
	"strings"

	"mcpgateway/internal/config"
)

// Several clients may have the same server, or two accounts at one, and names that
// are taken.

// findDuplicates looks for s in other files. twin is the same server in all that it is told.
// other has its name and runs the same, but is told something else, as for another
// account: both are kept.
func (im *importer) findDuplicates(s importedServer) (twin, other *importedServer) {
	for i := range im.result.servers {
		o := &im.result.servers[i]
		switch {
		case s.target != o.target || s.file == o.file:
		case s.differences(o) == "":
			return o, nil
		case s.origName == o.origName && other == nil:
			other = o
		}
	}
	return nil, other
}

// differences names what s and o, which run the same, are told differently; "" = they
// are one. How long they may take does not count.
func (s *importedServer) differences(o *importedServer) string {
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

func sameTable(a, b []namedValue) bool {
	sorted := func(all []namedValue) []namedValue {
		return slices.SortedStableFunc(slices.Values(all), func(a, b namedValue) int { return strings.Compare(a.name, b.name) })
	}
	return slices.Equal(sorted(a), sorted(b))
}

// droppedDifferences tells what becomes of s, left out for its twin o, beyond that.
func (s *importedServer) droppedDifferences(o *importedServer) string {
	lost := ""
	if s.startTimeout != o.startTimeout || s.callTimeout != o.callTimeout {
		lost += ", with other timeouts"
	}
	if !s.disabledInClient && o.disabledInClient {
		lost += ", where it is disabled"
	}
	return lost
}

// assignName gives s a name that fits and is not taken. other is a server that it
// would be if it were told the same.
func (im *importer) assignName(s, other *importedServer) {
	fit := config.UsableName(s.origName, map[string]bool{})
	if im.names[fit] && s.client.IsNamed() {
		fit += "-" + s.client.ID
	}
	s.name = config.UsableName(fit, im.names)
	switch {
	case s.name == s.origName:
	case other != nil:
		im.note("%s: %q is called %s here: it differs in %s from %s of %s", s.file, s.origName, s.name, s.differences(other), other.name, other.file)
	default:
		im.note("%s: %q is called %s here", s.file, s.origName, s.name)
	}
}
