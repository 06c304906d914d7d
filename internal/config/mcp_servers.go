package config

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
)

// readServersFile reads a file with mcpServers at pairs[at]. The other keys are keys of the
// gateway or of another client.
func (r *fileParser) readServersFile(pairs []pair, at int, top location) map[string]any {
	var gatewayPairs []pair
	for i, p := range pairs {
		_, known := fieldOf(settingsType, p.key)
		switch {
		case i == at:
		case p.key == "backends":
			r.fail(top.child(p.key, p.shown, p.line), "cannot be combined with mcpServers",
				"move all servers under one of them")
		case known:
			gatewayPairs = append(gatewayPairs, p)
		case didYouMean(p.key, settingsType) != "":
			r.warn(top.child(p.key, p.shown, p.line),
				"unknown key"+didYouMean(p.key, settingsType)+", ignored")
		}
	}
	out := r.record(gatewayPairs, settingsType, top)
	servers := pairs[at]
	if !node.IsAbsent(node.Deref(servers.value)) {
		out["backends"] = r.mcpServers(servers.value,
			top.child("mcpServers", "mcpServers", servers.line))
	}
	return out
}

// mcpServers reads mcpServers as a list of backends, in the order of the file.
func (r *fileParser) mcpServers(n *yaml.Node, at location) []any {
	out := []any{}
	taken := map[string]bool{}
	pairs := r.pairs(n, at)
	for _, p := range pairs {
		taken[p.key] = backendName().MatchString(p.key)
	}
	r.backend.inForeignEntry = true
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
		e := &foreignEntry{
			fileReport: r.fileReport, at: here, callTimeoutUnit: r.callTimeoutUnit,
			values: map[string]*yaml.Node{}, handled: []string{"disabled", "enabled"},
		}
		converted := append(e.convert(r.pairs(p.value, here)),
			pair{"name", "name", p.line, node.String(name)})
		out = append(out, r.readBackend(converted, here))
		r.reported[here.path] = len(r.errs) > before
	}
	r.backend.inForeignEntry = false
	return out
}

// UsableName converts a name to a valid backend name that is not taken, and marks the result as
// taken.
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

// foreignEntry is the state of the conversion of another client's entry.
type foreignEntry struct {
	*fileReport
	at              location
	callTimeoutUnit time.Duration // see fileParser

	values       map[string]*yaml.Node // values by key, without absent ones
	inapplicable []string              // keys without effect in this entry
	handled      []string              // keys that need no further conversion
	disabled     bool

	urlKey  string   // key of the URL, if there is one
	ignored []string // keys that are not supported
}

// convert converts an entry of another client to pairs with the gateway's keys. A warning lists the
// keys that cannot be converted. An entry that cannot work is disabled, so that the other entries
// in the file can be used.
func (e *foreignEntry) convert(pairs []pair) (converted []pair) {
	for _, p := range pairs {
		if v := node.Deref(p.value); !node.IsAbsent(v) {
			e.values[p.key] = v
		}
	}
	url := slices.ContainsFunc(dialect.URLKeys,
		func(key string) bool { return e.values[key] != nil })
	e.inapplicable = dialect.Inapplicable(e.values["command"] != nil, url)
	for _, key := range dialect.TransportKeys {
		if n := e.values[key]; n != nil && dialect.IsSSE(n.Value) && !url {
			e.inapplicable = append(e.inapplicable, key)
		}
	}
	if e.disabled = e.readDisabled(pairs); !e.disabled {
		if why := e.whyUnusable(); why != "" {
			e.warn(e.at, "is disabled: "+why)
			e.disabled = true
		}
	}
	if e.disabled {
		converted = append(converted, pair{"enabled", "enabled", e.at.line, node.False()})
	}
	tools, read, wrong := dialect.ReadToolFilter(
		func(key string) *yaml.Node { return e.values[key] })
	if wrong != "" {
		e.fail(e.at, wrong, "")
	}
	if n := tools.Node(e.at.line); n != nil {
		converted = append(converted, pair{"tools", "tools", e.at.line, n})
	}
	e.handled = append(e.handled, read...)
	for _, p := range pairs {
		if p, ok := e.convertKey(p); ok {
			converted = append(converted, p)
		}
	}
	if len(e.ignored) > 0 {
		e.warn(e.at, "the gateway ignores its "+
			dialect.IgnoredKeys(e.ignored))
	}
	return converted
}

// convertKey converts one pair. ok is false if the result is empty.
func (e *foreignEntry) convertKey(p pair) (_ pair, ok bool) {
	here, value := e.at.child(p.key, p.shown, p.line), node.Deref(p.value)
	limit := dialect.CallTimeout(value.Value, e.callTimeoutUnit)
	switch {
	case dialect.IsEmpty(value), slices.Contains(e.handled, p.key):
	case slices.Contains(e.inapplicable, p.key):
		e.ignored = append(e.ignored, p.shown)
	case p.key == "headers":
		kept, dropped := dropReserved(value)
		e.ignored = append(e.ignored, dropped...)
		p.value = kept
		return p, true
	case p.key == "args":
		p.value = dialect.EscapeEntryVariables(value, e.values["env"])
		return p, true
	case slices.Contains([]string{"command", "env", "cwd"}, p.key):
		return p, true
	case p.key == "envFile":
		p.key = "env_file"
		return p, true
	case slices.Contains(dialect.URLKeys, p.key) && e.urlKey != "":
		e.fail(here, "the URL is already set as "+e.urlKey,
			"keep one of url, serverUrl and httpUrl")
	case slices.Contains(dialect.URLKeys, p.key):
		e.urlKey, p.key = p.shown, "url"
		return p, true
	case slices.Contains(dialect.TransportKeys, p.key) && dialect.IsSSE(value.Value):
		return pair{"transport", p.shown, p.line, node.String(string(TransportSSE))}, true
	case slices.Contains(dialect.TransportKeys, p.key):
		if problem := dialect.UnsupportedTransport(value.Value); problem != "" && !e.disabled {
			e.fail(here, problem, "")
		}
	case p.key == "timeout" && limit > 0:
		return pair{"call_timeout", p.shown, p.line, node.String(limit.String())}, true
	default:
		e.ignored = append(e.ignored, p.shown)
	}
	return pair{}, false
}

// readDisabled reports whether the key disabled or the key enabled disables an entry.
func (e *foreignEntry) readDisabled(pairs []pair) bool {
	disabled := false
	for _, p := range pairs {
		value := node.Deref(p.value)
		switch {
		case p.key != "disabled" && p.key != "enabled", node.IsAbsent(value):
		case value.Value != "true" && value.Value != "false":
			e.fail(e.at.child(p.key, p.shown, p.line), "must be true or false", "")
		case p.key == "disabled":
			disabled = disabled || value.Value == "true"
		default:
			disabled = disabled || value.Value == "false"
		}
	}
	return disabled
}

// whyUnusable returns the reason if an entry cannot work in a gateway, whatever its variables are;
// "" = the entry may work.
func (e *foreignEntry) whyUnusable() string {
	if e.program().IsGateway() {
		return "it would start the gateway itself, endlessly"
	}
	for _, key := range dialect.URLKeys {
		if n := e.values[key]; n != nil && dialect.IsGatewayURL(n.Value) {
			return "it would call the gateway itself, endlessly"
		}
	}
	for _, key := range dialect.TransportKeys {
		if n := e.values[key]; n != nil && dialect.IsWebSocket(n.Value) {
			return dialect.UnsupportedTransport(n.Value)
		}
	}
	for _, key := range []string{"command", "args", "env", "envFile", "cwd", "url", "serverUrl",
		"httpUrl", "headers"} {
		x := expand.Expander{Env: expand.AllSet, Foreign: true}
		for text := range scalarTexts(e.values[key]) {
			x.Expand(text)
		}
		for _, t := range x.Errors {
			if t.Foreign {
				return t.Problem + "; " + t.Hint
			}
		}
	}
	return ""
}

// scalarTexts yields the text of n or, if n is a list or mapping, the texts of its values. It does
// not visit deeper levels, because entries have none and aliases may form a cycle.
func scalarTexts(n *yaml.Node) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch {
		case n == nil:
		case n.Kind == yaml.ScalarNode:
			yield(n.Value)
		case n.Kind == yaml.SequenceNode:
			for _, item := range n.Content {
				if !yield(node.Deref(item).Value) {
					return
				}
			}
		default:
			for _, value := range node.Children(n) {
				if !yield(value.Value) {
					return
				}
			}
		}
	}
}

// program returns the program that e starts.
func (e *foreignEntry) program() dialect.Program {
	var p dialect.Program
	if n := e.values["command"]; n != nil {
		p.Command = n.Value
	}
	if n := e.values["cwd"]; n != nil {
		p.Cwd = n.Value
	}
	for arg := range scalarTexts(e.values["args"]) {
		p.Args = append(p.Args, arg)
	}
	if env := e.values["env"]; env != nil && env.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(env.Content); i += 2 {
			if node.Deref(env.Content[i]).Value == "PATH" {
				p.Path = node.Deref(env.Content[i+1]).Value
			}
		}
	}
	return p
}
