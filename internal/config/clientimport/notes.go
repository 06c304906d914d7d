package clientimport

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/dialect"

	"mcpgateway/internal/config/internal/expand"
)

// origin is a place that still has what was imported from it.
type origin struct {
	title   string   // whose it is; "" = nobody knows
	file    string   // as shown
	command string   // that removes it there; "" = there is none
	names   []string // what it is called there
}

// recordOrigin notes where s stands, too, unless it is not served here.
func (im *importer) recordOrigin(s importedServer) {
	if s.isDisabled() {
		return
	}
	o := origin{title: s.client.Title, file: im.displayPath(s.path), command: im.removeCommand(s)}
	if !s.client.IsNamed() {
		o.title = ""
	}
	i := slices.IndexFunc(im.origins, func(other origin) bool {
		return o.title == other.title && o.file == other.file && o.command == other.command
	})
	if i < 0 {
		i, im.origins = len(im.origins), append(im.origins, o)
	}
	im.origins[i].names = append(im.origins[i].names, s.origName)
}

// removeCommand returns the command of its client that removes s, NAME being its name. A
// file that was copied from elsewhere, or is another project's, it would not find.
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

// finish hides what is secret, and ends the notes with what is left to do.
func (im *importer) finish() {
	im.hideSecrets()
	im.noteSimilarNames()
	im.noteDisabled()
	if names := im.unsetVariables(); len(names) > 0 {
		im.note("set before you start the gateway: %s", strings.Join(names, ", "))
	}
	if places := im.removalPlaces(); len(places) > 0 {
		im.note("these servers are now in both places; once the gateway serves them, remove them from %s", strings.Join(places, ", "))
	}
}

// droppedKeysText names the keys of s that are not taken over, and says what to do instead.
func (s *importedServer) droppedKeysText() string {
	text := "without its " + dialect.IgnoredKeys(s.droppedKeys, s.command != "")
	if slices.Contains(s.droppedKeys, "timeout") {
		text += "; set call_timeout instead of timeout"
	}
	return text
}

// noteSimilarNames names servers whose names differ in - and _ only: some clients write both as _, and
// so give two tools one name.
func (im *importer) noteSimilarNames() {
	seen := map[string]string{}
	for _, s := range im.result.servers {
		name := strings.ReplaceAll(s.name, "-", "_")
		if other, ok := seen[name]; ok {
			im.note("%s and %s differ in - and _ only, which some clients do not tell apart: rename one of them", other, s.name)
		}
		seen[name] = s.name
	}
}

// noteDisabled names what is switched off, in a line for each file and reason.
func (im *importer) noteDisabled() {
	var said []string
	for _, s := range im.result.servers {
		if !s.isDisabled() || slices.Contains(said, s.disabledReason()) {
			continue
		}
		var names []string
		for _, other := range im.result.servers {
			if other.isDisabled() && other.disabledReason() == s.disabledReason() {
				names = append(names, other.name)
			}
		}
		im.note("%s: %s", s.disabledReason(), strings.Join(names, ", "))
		said = append(said, s.disabledReason())
	}
}

// disabledReason tells where s is from, and why it is switched off.
func (s *importedServer) disabledReason() string {
	if s.fromProject {
		return s.file + ": switched off here (enabled: false), since a project's file brings it"
	}
	return s.file + ": switched off there, and so here (enabled: false)"
}

// unsetVariables lists the variables without which what was imported does not load, less
// those that the user has set already.
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

// removalPlaces says where to remove what was imported, and how.
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
