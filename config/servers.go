package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// withServers reads a file whose backends stand under mcpServers, at pairs[at].
// Its other keys are ours or another client's.
func (r *reader) withServers(pairs []pair, at int, top place) map[string]any {
	var ours []pair
	for i, p := range pairs {
		_, known := fieldOf(settingsType, p.key)
		switch {
		case i == at:
		case p.key == "backends":
			r.fail(top.child(p.key, p.shown, p.line), "cannot stand beside mcpServers", "move all servers under one of them")
		case known:
			ours = append(ours, p)
		case didYouMean(p.key, settingsType) != "":
			r.warn(top.child(p.key, p.shown, p.line), "unknown key"+didYouMean(p.key, settingsType)+", ignored")
		}
	}
	out := r.record(ours, settingsType, top)
	servers := pairs[at]
	if !isAbsent(deref(servers.value)) {
		out["backends"] = r.servers(servers.value, top.child("mcpServers", "mcpServers", servers.line))
	}
	return out
}

// servers reads mcpServers as a list of backends, in the order of the file.
func (r *reader) servers(n *yaml.Node, at place) []any {
	out := []any{}
	taken, ignored := map[string]bool{}, map[string]bool{}
	pairs := r.pairs(n, at)
	for _, p := range pairs {
		taken[p.key] = backendName.MatchString(p.key)
	}
	r.foreign = true
	for i, p := range pairs {
		here := place{path: fmt.Sprintf("backends[%d]", i), key: join(at.key, p.shown), line: p.line}
		r.places[here.path] = here
		name := p.key
		if !taken[p.key] {
			name = fitName(p.key, taken)
			r.warn(here, fmt.Sprintf("the name is not usable as a prefix; it is %q here", name))
		}
		before := len(r.errs)
		ours := r.translate(r.pairs(p.value, here), here, ignored)
		ours = append(ours, pair{"name", "name", p.line, text(name)})
		out = append(out, r.oneBackend(ours, here))
		r.broken[here.path] = len(r.errs) > before
	}
	r.foreign = false
	if len(ignored) > 0 {
		keys := slices.Sorted(maps.Keys(ignored))
		r.warn(at, "ignored, as keys of other clients: "+strings.Join(keys, ", "))
	}
	return out
}

// translate turns the pairs of another client's entry into ours. Keys it does
// not know go into ignored.
func (r *reader) translate(pairs []pair, at place, ignored map[string]bool) (ours []pair) {
	url, off := "", false
	for _, p := range pairs {
		off = off || p.key == "disabled" && deref(p.value).Value == "true"
		if p.key == "command" && isGateway(deref(p.value).Value) {
			r.warn(at, "is disabled: a gateway that starts itself would not stop doing so")
			return []pair{p, {"enabled", "enabled", p.line, falsehood()}}
		}
	}
	for _, p := range pairs {
		here := at.child(p.key, p.shown, p.line)
		switch p.key {
		case "command", "args", "env", "cwd", "headers":
		case "url", "serverUrl", "httpUrl":
			if url != "" {
				r.fail(here, "the URL is already there as "+url, "keep one of url, serverUrl and httpUrl")
				continue
			}
			url, p.key = p.shown, "url"
		case "type", "transport":
			if problem := unsupported(deref(p.value).Value); problem != "" && !off {
				r.fail(here, problem, "")
			}
			continue
		case "disabled":
			p.key, p.value = "enabled", r.inverted(p.value, here)
		default:
			ignored[p.shown] = true
			continue
		}
		ours = append(ours, p)
	}
	return ours
}

// unsupported says why a transport, by the name a client gave it, is not
// served; "" = it is.
func unsupported(transport string) string {
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(transport)) {
	case "", "stdio", "local", "http", "streamablehttp":
		return ""
	case "sse":
		return "HTTP+SSE is not supported yet"
	}
	return "must be stdio or http" + not(transport)
}

// inverted turns the node of disabled into that of enabled.
func (r *reader) inverted(n *yaml.Node, at place) *yaml.Node {
	n = deref(n)
	enabled := *n
	switch {
	case n.Value == "true":
		enabled.Value = "false"
	case n.Value == "false":
		enabled.Value = "true"
	case !isAbsent(n):
		r.fail(at, "must be true or false", "")
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	return &enabled
}

func (r *reader) warn(at place, text string) {
	r.warnings = append(r.warnings, (&Error{File: r.file, Line: at.line, Key: at.key, Problem: text}).Error())
}

// isGateway tells whether a command is this program.
func isGateway(command string) bool {
	base := strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
	base = strings.TrimSuffix(base, ".exe")
	return base == "gateway" || base == "mcp-gateway"
}

// text is the node of a string, falsehood that of false.
func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

func falsehood() *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"}
}

// fitName makes a backend's name of any name, one that is not taken, and takes
// it.
func fitName(name string, taken map[string]bool) string {
	fit := name
	if !backendName.MatchString(name) {
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
