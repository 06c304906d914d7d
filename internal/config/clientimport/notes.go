package clientimport

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/expand"
)

// sourceFile is a file that contains imported servers.
type sourceFile struct {
	title   string   // title of the client; "" = unknown
	file    string   // path for display
	command string   // command that removes a server from the client; "" = none
	names   []string // names of the servers in the file
}

// sourceFiles are the files in which the user can remove imported servers.
type sourceFiles []sourceFile

// add records the file of s, unless s is disabled.
func (all *sourceFiles) add(s importedServer, o Options) {
	if s.isDisabled() {
		return
	}
	f := sourceFile{title: s.client.Title, file: o.displayPath(s.path), command: o.removeCommand(s)}
	if !s.client.IsNamed() {
		f.title = ""
	}
	i := slices.IndexFunc(*all, func(other sourceFile) bool {
		return f.title == other.title && f.file == other.file && f.command == other.command
	})
	if i < 0 {
		i, *all = len(*all), append(*all, f)
	}
	(*all)[i].names = append((*all)[i].names, s.origName)
}

// removeCommand returns the client's command that removes s, with NAME in place of the server's
// name. It returns "" for a client without such a command, and for a copy of a file or a file of
// another project, because the command would not find the server.
func (o Options) removeCommand(s importedServer) string {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return ""
	}
	home, cwd := o.Home, o.Cwd
	switch path {
	case filepath.Join(home, ".claude.json"):
		if s.projectScoped {
			return "claude mcp remove -s local NAME"
		}
		return "claude mcp remove -s user NAME"
	case filepath.Join(cwd, ".mcp.json"):
		return "claude mcp remove -s project NAME"
	case filepath.Join(home, ".gemini", "settings.json"):
		return "gemini mcp remove -s user NAME"
	case filepath.Join(cwd, ".gemini", "settings.json"):
		return "gemini mcp remove -s project NAME"
	case filepath.Join(o.codexHome(), "config.toml"):
		return "codex mcp remove NAME"
	}
	return ""
}

// removalPlaces describes where and how to remove the imported servers from their clients.
func (all sourceFiles) removalPlaces() []string {
	var places []string
	for _, f := range all {
		place := cmp.Or(f.command, f.file)
		if f.command != "" {
			place += " for " + strings.Join(f.names, ", ")
		}
		if f.title != "" {
			place = f.title + " (" + place + ")"
		}
		places = append(places, place)
	}
	return places
}

// finish replaces secrets and adds the notes about all servers.
func (im *importer) finish() {
	im.secrets.replaceIn(im.result.servers)
	im.result.secrets = im.secrets.stored
	im.noteSimilarNames()
	im.noteDisabled()
	if names := im.unsetVariables(); len(names) > 0 {
		im.note("set before you start the gateway: %s", strings.Join(names, ", "))
	}
	if places := im.sources.removalPlaces(); len(places) > 0 {
		im.note(
			"the imported servers are still configured in the clients; "+
				"once the gateway serves them, remove them from %s",
			strings.Join(places, ", "))
	}
}

// noteSimilarNames adds notes about names that differ only in - and _. Some clients replace both by
// _, so that two tools get the same name.
func (im *importer) noteSimilarNames() {
	seen := map[string]string{}
	for _, s := range im.result.servers {
		name := strings.ReplaceAll(s.name, "-", "_")
		if other, ok := seen[name]; ok {
			im.note(
				"%s and %s differ in - and _ only, which some clients do not tell apart: rename one of them",
				other, s.name)
		}
		seen[name] = s.name
	}
}

// noteDisabled adds a note about disabled servers for each file and reason.
func (im *importer) noteDisabled() {
	var noted []string
	for _, s := range im.result.servers {
		if !s.isDisabled() || slices.Contains(noted, s.disabledReason()) {
			continue
		}
		var names []string
		for _, other := range im.result.servers {
			if other.isDisabled() && other.disabledReason() == s.disabledReason() {
				names = append(names, other.name)
			}
		}
		im.note("%s: %s", s.disabledReason(), strings.Join(names, ", "))
		noted = append(noted, s.disabledReason())
	}
}

// unsetVariables returns the variables that must be set to load the result, except for variables
// that the user has set.
func (im *importer) unsetVariables() []string {
	var names []string
	for i := range im.result.servers {
		if im.result.servers[i].isDisabled() {
			continue
		}
		for _, text := range im.result.servers[i].texts() {
			for _, name := range expand.Required(text) {
				isStored := func(s StoredSecret) bool { return s.Name == name }
				if slices.ContainsFunc(im.result.secrets, isStored) {
					continue
				}
				_, set := im.opts.Env(name)
				ofUser := set && im.secrets.variables[name] == unknownValue
				if !ofUser && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
