// Package node parses a configuration file, YAML or JSON, into YAML nodes, and has helpers to read
// and build such nodes. Each node has the line of its value in the file.
//
// JSON may have comments, trailing commas and a byte order mark, as in the files of VS Code. Errors
// never quote the text of a value, because it may be a secret.
package node

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// ShowKey returns a key for display. Who writes { TOKEN=value } makes a key of
// what should not be shown: it ends at the sign.
func ShowKey(key string) string {
	if i := strings.IndexAny(key, "=:"); i >= 0 {
		key = key[:i+1] + "…"
	}
	return OneLine(key)
}

// OneLine keeps what other people wrote from breaking a line of ours.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return '?'
		}
		return c
	}, s)
}

// Deref follows an alias to what it stands for.
func Deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Children yields the pairs of a mapping; of anything else, nothing.
func Children(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, Deref(n.Content[i+1])) {
				return
			}
		}
	}
}

// Child is the value of a key, nil if it is not there or null.
func Child(n *yaml.Node, key string) *yaml.Node {
	for name, value := range Children(n) {
		if name == key && !IsAbsent(value) {
			return value
		}
	}
	return nil
}

func Items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// String is the node of a string, falsehood that of false.
func String(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

func False() *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"}
}

// Mapping is the content of a mapping node. What is empty is not added.
type Mapping []*yaml.Node

func (m *Mapping) Add(key string, value *yaml.Node) {
	*m = append(*m, EscapedString(key), value)
}

func (m *Mapping) AddString(key, value string) {
	if value != "" {
		m.Add(key, EscapedString(value))
	}
}

func (m *Mapping) AddStrings(key string, values []string) {
	if len(values) == 0 {
		return
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, value := range values {
		list.Content = append(list.Content, EscapedString(value))
	}
	m.Add(key, list)
}

// EscapedString is the node of a string; what does not print is escaped.
func EscapedString(s string) *yaml.Node {
	n := String(s)
	odd := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
	if strings.ContainsFunc(s, odd) || slices.Contains([]string{"~", "<<"}, s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// IsAbsent tells whether n is a value that was left out, as in "catalog:" with
// all below it commented out. A lone ~ is not: where a string may stand it
// means the home directory.
func IsAbsent(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Value != "~"
}

// Not ends a sentence on what a value must be with what it is: text that stands
// in the file, if it is short enough to help.
func Not(text string) string {
	if text == "" || len(text) > 40 {
		return ""
	}
	return fmt.Sprintf(", not %q", text)
}
