// Package node parses a configuration file, YAML or JSON, and returns YAML nodes. It also contains
// helpers that read and build such nodes. Each node has the line of its value in the file.
//
// JSON may have comments, trailing commas and a byte order mark, as in the files of VS Code.
// Errors never contain the text of a value, because it may be a secret.
package node

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// ShowKey returns a key for display. It replaces the text after the first = or : by an ellipsis,
// because in { TOKEN=value } the value is a part of the key and must not be shown.
func ShowKey(key string) string {
	if i := strings.IndexAny(key, "=:"); i >= 0 {
		key = key[:i+1] + "…"
	}
	return OneLine(key)
}

// OneLine replaces unprintable characters in text from outside, such as line breaks, by question
// marks.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return '?'
		}
		return c
	}, s)
}

// Deref returns the node that an alias refers to.
func Deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Children yields the pairs of a mapping, and nothing for other nodes.
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

// Child returns the value of a key; nil if it is missing or null.
func Child(n *yaml.Node, key string) *yaml.Node {
	for name, value := range Children(n) {
		if name == key && !IsAbsent(value) {
			return value
		}
	}
	return nil
}

// Items returns the items of a list, and nil for other nodes.
func Items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// String returns the node of a string.
func String(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// False returns the node of the value false.
func False() *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"}
}

// Mapping is the content of a mapping node.
type Mapping []*yaml.Node

// Add appends a key and its value.
func (m *Mapping) Add(key string, value *yaml.Node) {
	*m = append(*m, EscapedString(key), value)
}

// AddString appends a key and a string, unless the string is empty.
func (m *Mapping) AddString(key, value string) {
	if value != "" {
		m.Add(key, EscapedString(value))
	}
}

// AddStrings appends a key and a list of strings, unless the list is empty.
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

// EscapedString returns the node of a string. The node is quoted if the string contains unprintable
// characters, which are then escaped, or is ~ or <<, which have a meaning in YAML.
func EscapedString(s string) *yaml.Node {
	n := String(s)
	odd := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
	if strings.ContainsFunc(s, odd) || slices.Contains([]string{"~", "<<"}, s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// IsAbsent reports whether a value is omitted, as in "catalog:" if all keys below it are commented
// out. A single ~ is not absent, because as a string it means the home directory.
func IsAbsent(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Value != "~"
}

// Not returns the suffix `, not "text"` for an error about a value; "" if the text is empty or too
// long.
func Not(text string) string {
	if text == "" || len(text) > 40 {
		return ""
	}
	return fmt.Sprintf(", not %q", text)
}
