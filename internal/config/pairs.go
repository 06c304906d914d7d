package config

import (
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// pair is one line of a mapping.
type pair struct {
	key   string
	shown string // the key as the user wrote it, see showKey
	line  int
	value *yaml.Node
}

// pairs returns what the mapping n holds, in its order. It reports duplicate
// keys and keys that are no plain text.
func (r *reader) pairs(n *yaml.Node, at place) []pair {
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		r.fail(at, "must be a mapping", "")
		return nil
	}
	var all []pair
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		here := at.child(key.Value, showKey(key.Value), key.Line)
		switch first := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.fail(place{key: at.key, line: key.Line}, "a key must be plain text", "")
		case key.Tag == "!!merge":
			r.fail(here, "merge keys are not supported", "write the keys out; what all backends share goes under defaults")
		case first > 0:
			r.fail(here, fmt.Sprintf("is already there on line %d", first), "")
		default:
			lines[key.Value] = key.Line
			all = append(all, pair{key.Value, showKey(key.Value), key.Line, value})
		}
	}
	return all
}

// showKey returns a key for display. Who writes { TOKEN=value } makes a key of
// what should not be shown: it ends at the sign.
func showKey(key string) string {
	if i := strings.IndexAny(key, "=:"); i >= 0 {
		key = key[:i+1] + "…"
	}
	return oneLine(key)
}

// oneLine keeps what other people wrote from breaking a line of ours.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return '?'
		}
		return c
	}, s)
}

// deref follows an alias to what it stands for.
func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
