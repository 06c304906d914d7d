package dialect

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/node"
)

// Tool filters in the entries of other clients. Each restriction is either converted or reported in
// a warning or note; no restriction is dropped silently.

var (
	// Gemini; Codex; Copilot
	allowKeys = []string{"includeTools", "enabled_tools", "tools"}
	// Gemini; Windsurf, Cline, Roo; Codex
	denyKeys = []string{"excludeTools", "disabledTools", "disabled_tools"}
)

// A ToolFilter contains globs: Allow for the tools that may be called (none = all tools), and Deny
// for the tools that must not be called.
type ToolFilter struct{ Allow, Deny []string }

// ReadToolFilter converts the tool filters of an entry. The result read lists the keys that were
// used. The result wrong describes a problem with one of these keys; "" = none.
func ReadToolFilter(value func(key string) *yaml.Node) (t ToolFilter, read []string, wrong string) {
	for _, key := range allowKeys {
		n := value(key)
		names, ok := toolNames(n)
		switch {
		case n == nil, len(read) > 0: // a second list is reported as ignored
		case !ok && key == "tools": // approvals, in Claude Code and Codex
		case !ok:
			wrong = key + " is not a list of names"
		case len(names) == 0: // means no tools; an empty Allow would mean all
			t.Deny = append(t.Deny, "*")
			read = append(read, key)
		default:
			if !slices.Contains(names, "*") {
				t.Allow = globs(names)
			}
			read = append(read, key)
		}
	}
	for _, key := range denyKeys {
		n := value(key)
		names, ok := toolNames(n)
		switch {
		case n == nil:
		case !ok:
			wrong = key + " is not a list of names"
		default:
			t.Deny = append(t.Deny, globs(names)...)
			read = append(read, key)
		}
	}
	return t, read, wrong
}

// Node returns t in the form of a configuration file; nil if t is empty.
func (t ToolFilter) Node(line int) *yaml.Node {
	list := func(globs []string) *yaml.Node {
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, glob := range globs {
			item := node.EscapedString(glob)
			item.Line = line
			n.Content = append(n.Content, item)
		}
		return n
	}
	var m node.Mapping
	if len(t.Allow) > 0 {
		m.Add("allow", list(t.Allow))
	}
	if len(t.Deny) > 0 {
		m.Add("deny", list(t.Deny))
	}
	if m == nil {
		return nil
	}
	for _, n := range m {
		n.Line = line
	}
	return &yaml.Node{Kind: yaml.MappingNode, Content: m, Line: line}
}

// toolNames reads a list of tools. In Gemini, arguments may follow a name.
func toolNames(n *yaml.Node) (names []string, ok bool) {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil, false
	}
	for _, item := range n.Content {
		if item = node.Deref(item); item.Kind != yaml.ScalarNode {
			return nil, false
		}
		name, _, _ := strings.Cut(item.Value, "(")
		names = append(names, name)
	}
	return names, true
}

// globs returns globs that match exactly the names. A lone * still matches all.
func globs(names []string) []string {
	var all []string
	for _, name := range names {
		if name != "*" {
			name = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
		}
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
