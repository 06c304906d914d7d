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

// origin notes where s stands, too, unless it is not served here.
func (im *importer) origin(s server) {
	if s.off() {
		return
	}
	o := origin{title: s.client.Title, file: im.shown(s.path), command: im.remover(s)}
	if !s.client.IsNamed() {
		o.title = ""
	}
	i := slices.IndexFunc(im.from, func(other origin) bool {
		return o.title == other.title && o.file == other.file && o.command == other.command
	})
	if i < 0 {
		i, im.from = len(im.from), append(im.from, o)
	}
	im.from[i].names = append(im.from[i].names, s.theirName)
}

// remover returns the command of its client that removes s, NAME being its name. A
// file that was copied from elsewhere, or is another project's, it would not find.
func (im *importer) remover(s server) string {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return ""
	}
	home, cwd := im.opts.Home, im.opts.Cwd
	switch path {
	case filepath.Join(home, ".claude.json"):
		if s.local {
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
	im.noteAlike()
	im.noteOff()
	if names := im.toSet(); len(names) > 0 {
		im.note("set before you start the gateway: %s", strings.Join(names, ", "))
	}
	if places := im.stillThere(); len(places) > 0 {
		im.note("these servers are now in both places; once the gateway serves them, remove them from %s", strings.Join(places, ", "))
	}
}

// without names the keys of s that are not taken over, and says what to do instead.
func (s *server) without() string {
	text := "without its " + dialect.IgnoredKeys(s.left, s.command != "")
	if slices.Contains(s.left, "timeout") {
		text += "; set call_timeout instead of timeout"
	}
	return text
}

// noteAlike names servers whose names differ in - and _ only: some clients write both as _, and
// so give two tools one name.
func (im *importer) noteAlike() {
	seen := map[string]string{}
	for _, s := range im.out.servers {
		name := strings.ReplaceAll(s.name, "-", "_")
		if other, ok := seen[name]; ok {
			im.note("%s and %s differ in - and _ only, which some clients do not tell apart: rename one of them", other, s.name)
		}
		seen[name] = s.name
	}
}

// noteOff names what is switched off, in a line for each file and reason.
func (im *importer) noteOff() {
	var said []string
	for _, s := range im.out.servers {
		if !s.off() || slices.Contains(said, s.why()) {
			continue
		}
		var names []string
		for _, other := range im.out.servers {
			if other.off() && other.why() == s.why() {
				names = append(names, other.name)
			}
		}
		im.note("%s: %s", s.why(), strings.Join(names, ", "))
		said = append(said, s.why())
	}
}

// why tells where s is from, and why it is switched off.
func (s *server) why() string {
	if s.project {
		return s.file + ": switched off here (enabled: false), since a project's file brings it"
	}
	return s.file + ": switched off there, and so here (enabled: false)"
}

// toSet lists the variables without which what was imported does not load, less
// those that the user has set already.
func (im *importer) toSet() []string {
	var names []string
	for i := range im.out.servers {
		if im.out.servers[i].off() {
			continue
		}
		for _, text := range im.out.servers[i].all() {
			for _, name := range expand.Required(text) {
				_, set := im.opts.Env(name)
				if (!set || im.vars[name] != unknown) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// stillThere says where to remove what was imported, and how.
func (im *importer) stillThere() []string {
	var places []string
	for _, o := range im.from {
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
