package clientimport

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/expand"
)

// sourceFile is a file that contains imported servers.
type sourceFile struct {
	title   string   // title of the client; "" = unknown
	file    string   // path for display
	command string   // command that removes a server from the client; "" = none
	names   []string // names of the servers in the file
}

// recordOrigin records the file of s, unless s is disabled.
func (im *importer) recordOrigin(s importedServer) {
	if s.isDisabled() {
		return
	}
	o := sourceFile{title: s.client.Title, file: im.displayPath(s.path),
		command: im.removeCommand(s)}
	if !s.client.IsNamed() {
		o.title = ""
	}
	i := slices.IndexFunc(im.origins, func(other sourceFile) bool {
		return o.title == other.title && o.file == other.file && o.command == other.command
	})
	if i < 0 {
		i, im.origins = len(im.origins), append(im.origins, o)
	}
	im.origins[i].names = append(im.origins[i].names, s.origName)
}

// removeCommand returns the client's command that removes s, with NAME in place of the server's
// name. It returns "" for a client without such a command, and for a copy of a file or a file of
// another project, because the command would not find the server.
func (im *importer) removeCommand(s importedServer) string {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return ""
	}
	home, cwd := im.opts.Home, im.opts.Cwd
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
	case filepath.Join(im.codexHome(), "config.toml"):
		return "codex mcp remove NAME"
	}
	return ""
}

// finish replaces secrets and adds the notes about all servers.
func (im *importer) finish() {
	im.hideSecrets()
	im.noteSimilarNames()
	im.noteDisabled()
	if names := im.unsetVariables(); len(names) > 0 {
		im.note("set before you start the gateway: %s", strings.Join(names, ", "))
	}
	if places := im.removalPlaces(); len(places) > 0 {
		im.note(
			"the imported servers are still configured in the clients; "+
				"once the gateway serves them, remove them from %s",
			strings.Join(places, ", "))
	}
}

// droppedKeysText describes the keys of s that are not imported and their replacement.
func (s *importedServer) droppedKeysText() string {
	text := "without its " + dialect.IgnoredKeys(s.droppedKeys, s.command != "")
	if slices.Contains(s.droppedKeys, "timeout") {
		text += "; set call_timeout instead of timeout"
	}
	return text
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

// disabledReason returns the file of s and the reason why s is disabled.
func (s *importedServer) disabledReason() string {
	if s.fromProject {
		return s.file + ": disabled here (enabled: false), because it is in a file of the project"
	}
	return s.file + ": disabled in the client, and therefore here (enabled: false)"
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
				_, set := im.opts.Env(name)
				if (!set || im.variables[name] != unknownValue) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// removalPlaces describes where and how to remove the imported servers from their clients.
func (im *importer) removalPlaces() []string {
	var places []string
	for _, o := range im.origins {
		place := cmp.Or(o.command, o.file)
		if o.command != "" {
			place += " for " + strings.Join(o.names, ", ")
		}
		if o.title != "" {
			place = o.title + " (" + place + ")"
		}
		places = append(places, place)
	}
	return places
}
