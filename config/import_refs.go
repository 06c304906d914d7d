package config

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reference matches every way to refer to a variable, and any other dollar.
// Which of them mean something is a matter of the client.
var reference = regexp.MustCompile(`` +
	`\$\{env:(?P<prefixed>[A-Za-z_]\w*)\}` +
	`|\$\{input:(?P<input>[^}]*)\}` +
	`|\$\{(?P<special>userHome|workspaceFolder|workspaceFolderBasename|pathSeparator|/)\}` +
	`|\$\{(?P<braced>[A-Za-z_]\w*(?::-[^}]*)?)\}` +
	`|\$(?P<bare>[A-Za-z_]\w*)` +
	`|\{env:(?P<plain>[A-Za-z_]\w*)\}` +
	`|\$`)

// translate turns a string of another client into ours: references become
// ${VAR}, every dollar that is none is doubled.
func (f *foreignFile) translate(s string) string {
	var out strings.Builder
	end := 0
	for _, m := range reference.FindAllStringSubmatchIndex(s, -1) {
		group := func(name string) string {
			i := 2 * reference.SubexpIndex(name)
			if m[i] < 0 {
				return ""
			}
			return s[m[i]:m[i+1]]
		}
		whole := s[m[0]:m[1]]
		out.WriteString(s[end:m[0]])
		out.WriteString(f.ours(whole, group))
		end = m[1]
	}
	return out.String() + s[end:]
}

func (f *foreignFile) ours(whole string, group func(string) string) string {
	knows := f.client.refs
	switch {
	case group("prefixed") != "" && knows.prefix:
		return "${" + group("prefixed") + "}"
	case group("input") != "" && knows.prefix:
		return f.input(group("input"))
	case group("special") == "userHome" && knows.prefix:
		return "${HOME}"
	case group("special") != "" && knows.prefix:
		text, _ := folder(group("special"), workspace(f.path, f.opts.Cwd, f.opts.Home))
		return strings.ReplaceAll(text, "$", "$$")
	case nameLength(group("special")) > 0 && knows.braces, group("braced") != "" && knows.braces:
		return whole
	case group("bare") != "" && knows.bare:
		return "${" + group("bare") + "}"
	case group("plain") != "" && knows.plain:
		return "${" + group("plain") + "}"
	}
	return strings.ReplaceAll(whole, "$", "$$")
}

// input turns what VS Code would ask for into a variable.
func (f *foreignFile) input(id string) string {
	name, kind := variable(id), "input"
	if f.passwords[id] {
		kind = "password"
	}
	note := oneLine(fmt.Sprintf("%s: %s %q is ${%s} here; set it", f.shown, kind, id, name))
	if !slices.Contains(f.notes, note) {
		f.notes = append(f.notes, note)
	}
	return "${" + name + "}"
}

// refersTo lists the variables that a string of ours refers to.
func refersTo(s string) []string {
	var names []string
	x := expander{env: func(name string) (string, bool) {
		names = append(names, name)
		return "", true
	}}
	x.expand(s)
	return names
}

// needs lists the variables without which a string of ours cannot be read.
func needs(s string) []string {
	var names []string
	x := expander{env: func(string) (string, bool) { return "", false }}
	x.expand(s)
	for _, t := range x.wrong {
		names = append(names, t.unset)
	}
	return names
}

// children yields the pairs of a mapping; of anything else, nothing.
func children(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, deref(n.Content[i+1])) {
				return
			}
		}
	}
}

// child is the value of a key, nil if it is not there or null.
func child(n *yaml.Node, key string) *yaml.Node {
	for name, value := range children(n) {
		if name == key && !isAbsent(value) {
			return value
		}
	}
	return nil
}

func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}
