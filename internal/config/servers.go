package config

import (
	"cmp"
	"fmt"
	"strings"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"
)

// readServersFile reads a file with mcpServers at pairs[at]. The other keys are keys of the
// gateway or of another client.
func (r *reader) readServersFile(pairs []pair, at int, top location) map[string]any {
	var ours []pair
	for i, p := range pairs {
		_, known := fieldOf(settingsType, p.key)
		switch {
		case i == at:
		case p.key == "backends":
			r.fail(top.child(p.key, p.shown, p.line), "cannot be combined with mcpServers",
				"move all servers under one of them")
		case known:
			ours = append(ours, p)
		case didYouMean(p.key, settingsType) != "":
			r.warn(top.child(p.key, p.shown, p.line),
				"unknown key"+didYouMean(p.key, settingsType)+", ignored")
		}
	}
	out := r.record(ours, settingsType, top)
	servers := pairs[at]
	if !node.IsAbsent(node.Deref(servers.value)) {
		out["backends"] = r.mcpServers(servers.value,
			top.child("mcpServers", "mcpServers", servers.line))
	}
	return out
}

// mcpServers reads mcpServers as a list of backends, in the order of the file.
func (r *reader) mcpServers(n *yaml.Node, at location) []any {
	out := []any{}
	taken := map[string]bool{}
	pairs := r.pairs(n, at)
	for _, p := range pairs {
		taken[p.key] = backendName().MatchString(p.key)
	}
	r.inForeignEntry = true
	for i, p := range pairs {
		here := location{path: fmt.Sprintf("backends[%d]", i), key: joinPath(at.key, p.shown),
			line: p.line}
		r.locations[here.path] = here
		name := p.key
		if !taken[p.key] {
			name = UsableName(p.key, taken)
			r.warn(here, fmt.Sprintf("the name is not usable as a prefix; it is %q here", name))
		}
		before := len(r.errs)
		ours := r.convertEntry(r.pairs(p.value, here), here)
		ours = append(ours, pair{"name", "name", p.line, node.String(name)})
		out = append(out, r.backend(ours, here))
		r.reported[here.path] = len(r.errs) > before
	}
	r.inForeignEntry = false
	return out
}

func (r *reader) warn(at location, text string) {
	r.warnings = append(r.warnings,
		(&Error{File: r.file, Line: at.line, Key: at.key, Problem: text}).Error())
}

// UsableName converts a name into a valid backend name that is not taken, and marks it as taken.
func UsableName(name string, taken map[string]bool) string {
	fit := name
	if !backendName().MatchString(name) {
		fit = strings.Map(func(c rune) rune {
			switch {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_':
				return c
			case 'A' <= c && c <= 'Z':
				return c - 'A' + 'a'
			}
			return '-'
		}, name)
		fit = cmp.Or(strings.Trim(fit, "-_"), "server")
	}
	unique := fit
	for i := 2; taken[unique]; i++ {
		unique = fmt.Sprintf("%s-%d", fit, i)
	}
	taken[unique] = true
	return unique
}
