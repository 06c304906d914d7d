package clientimport

import (
	"slices"
	"strings"

	"mcpgateway/internal/config"
)

// Several clients may have the same server, different accounts at one server, or the same name for
// different servers.

// findDuplicates searches for s in the servers of other files. identical is a server that has the
// target and settings of s; its name, its timeouts and whether it is disabled may differ. sameName
// is a server with the same name and target but other settings, for example another account; in
// this case both servers are kept.
func (im *importer) findDuplicates(s importedServer) (identical, sameName *importedServer) {
	for i := range im.result.servers {
		o := &im.result.servers[i]
		switch {
		case s.target != o.target || s.file == o.file:
		case s.differences(o) == "":
			return o, nil
		case s.origName == o.origName && sameName == nil:
			sameName = o
		}
	}
	return nil, sameName
}

// differences lists the keys in which s and o differ; "" = none. s and o have the same target.
// Names, timeouts and whether a server is disabled are ignored.
func (s *importedServer) differences(o *importedServer) string {
	var all []string
	for _, part := range []struct {
		name string
		same bool
	}{
		{"env", sameTable(s.env, o.env)},
		{"env_file", s.envFile == o.envFile},
		{"inherit_env", slices.Equal(s.inherit, o.inherit)},
		{"transport", s.transport == o.transport},
		{"headers", sameTable(s.headers, o.headers)},
		{"cwd", s.cwd == o.cwd},
		{"tools", slices.Equal(s.tools.Allow, o.tools.Allow) &&
			slices.Equal(s.tools.Deny, o.tools.Deny)},
	} {
		if !part.same {
			all = append(all, part.name)
		}
	}
	return strings.Join(all, ", ")
}

func sameTable(a, b []namedValue) bool {
	sorted := func(all []namedValue) []namedValue {
		return slices.SortedStableFunc(slices.Values(all),
			func(a, b namedValue) int { return strings.Compare(a.name, b.name) })
	}
	return slices.Equal(sorted(a), sorted(b))
}

// droppedDifferences describes those differences between s and o that findDuplicates ignores,
// except for names; "" = none. o is imported in place of s.
func (s *importedServer) droppedDifferences(o *importedServer) string {
	text := ""
	if s.startTimeout != o.startTimeout || s.callTimeout != o.callTimeout {
		text += ", with other timeouts"
	}
	if !s.disabledInClient && o.disabledInClient {
		text += ", where it is disabled"
	}
	return text
}

// assignName gives s a valid name that is not taken, and adds a note if the name differs from that
// in the client. sameName is the result of findDuplicates.
func (im *importer) assignName(s, sameName *importedServer) {
	fit := config.UsableName(s.origName, map[string]bool{})
	if im.names[fit] && s.client.IsNamed() {
		fit += "-" + s.client.ID
	}
	s.name = config.UsableName(fit, im.names)
	switch {
	case s.name == s.origName:
	case sameName != nil:
		im.note("%s: %q is called %s here: it differs in %s from %s of %s", s.file, s.origName,
			s.name, s.differences(sameName), sameName.name, sameName.file)
	default:
		im.note("%s: %q is called %s here", s.file, s.origName, s.name)
	}
}
