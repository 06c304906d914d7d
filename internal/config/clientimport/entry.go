package clientimport

import (
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/node"
)

// serverReader reads the values of one server, translates them, and records problems.
type serverReader struct {
	file     *foreignFile
	node     *yaml.Node
	problem  *string
	readKeys map[string]bool
}

// get returns the value of a key, nil if it is absent, and marks the key as read.
func (e serverReader) get(key string) *yaml.Node {
	e.readKeys[key] = true
	return node.Child(e.node, key)
}

// markUnread marks a key as not read.
func (e serverReader) markUnread(key string) { delete(e.readKeys, key) }

// unreadKeys returns the keys that were not read and are not empty.
func (e serverReader) unreadKeys() []string {
	var all []string
	for key, value := range node.Children(e.node) {
		if !e.readKeys[key] && !dialect.IsEmpty(value) {
			all = append(all, node.ShowKey(key))
		}
	}
	return all
}

// dropInapplicable removes from s the settings that have no effect with its command or URL, and
// marks their keys as not read.
func (e serverReader) dropInapplicable(s *importedServer) {
	all := dialect.Inapplicable(s.command != "", s.url != "")
	for _, key := range all {
		e.markUnread(key)
	}
	switch {
	case all == nil:
	case s.url == "":
		if s.transport != "" {
			e.markUnread("type")
			e.markUnread("transport")
		}
		s.headers, s.transport = nil, ""
	default:
		s.args, s.env, s.inherit, s.cwd = nil, nil, nil, ""
	}
}

// tools reads the tool filters.
func (e serverReader) tools() dialect.ToolFilter {
	t, read, wrong := dialect.ReadToolFilter(func(key string) *yaml.Node {
		return node.Child(e.node,
			key)
	})
	if wrong != "" {
		*e.problem = wrong
	}
	for _, key := range read {
		e.readKeys[key] = true
	}
	for _, globs := range [][]string{t.Allow, t.Deny} {
		for i := range globs {
			globs[i] = e.file.translate(globs[i])
		}
	}
	return t
}

// timeout reads a timeout, given as a number of units. It returns 0 if the key is absent or is not
// a valid timeout, and then does not mark the key as read.
func (e serverReader) timeout(key string, unit time.Duration) time.Duration {
	n := node.Child(e.node, key)
	if n == nil || n.Kind != yaml.ScalarNode {
		return 0
	}
	d := dialect.CallTimeout(n.Value, unit)
	e.readKeys[key] = d > 0
	return d
}

func (e serverReader) scalar(n *yaml.Node, key string) string {
	if n = node.Deref(n); n.Kind != yaml.ScalarNode {
		*e.problem = key + " is not a string"
		return ""
	}
	return e.file.translate(n.Value)
}

// text returns the value of the first of the keys that is present; "" = none is present.
func (e serverReader) text(keys ...string) string {
	for _, key := range keys {
		if node.Child(e.node, key) != nil {
			return e.scalar(e.get(key), key)
		}
	}
	return ""
}

func (e serverReader) list(key string) []string {
	n := e.get(key)
	if n != nil && n.Kind != yaml.SequenceNode {
		*e.problem = key + " is not a list"
	}
	var all []string
	for _, item := range node.Items(n) {
		all = append(all, e.scalar(item, key))
	}
	return all
}

// arguments reads the arguments of a program. References to variables that the entry sets are kept
// as text, because the program may expand them.
func (e serverReader) arguments() []string {
	e.file.entryVariables = e.variablesSet()
	defer func() { e.file.entryVariables = nil }()
	return e.list("args")
}

// variablesSet returns the variables that the entry sets, except for variables whose value contains
// their name: A: ${A}.
func (e serverReader) variablesSet() map[string]bool {
	set := map[string]bool{}
	for _, key := range []string{"env", "environment", "envs"} {
		for name, value := range dialect.VariablesSet(node.Child(e.node, key)) {
			set[name] = value
		}
	}
	return set
}

func (e serverReader) table(key string) []namedValue {
	n := e.get(key)
	if n != nil && n.Kind != yaml.MappingNode {
		*e.problem = key + " is not a mapping"
	}
	var all []namedValue
	for name, value := range node.Children(n) {
		all = append(all, namedValue{name, e.scalar(value, key)})
	}
	return all
}

func (e serverReader) hasValue(key, value string) bool {
	n := e.get(key)
	return n != nil && n.Value == value
}

// seconds reads a number of seconds, which may have a fraction. It returns 0 if the key is absent
// or is not a valid timeout, and then marks the key as not read.
func (e serverReader) seconds(key string) time.Duration {
	n, err := strconv.ParseFloat(e.text(key), 64)
	if err != nil || !(n > 0 && n <= 1e6) {
		e.markUnread(key)
		return 0
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
}
