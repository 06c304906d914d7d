package config

import (
	"fmt"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"
)

// pair is one entry of a mapping.
type pair struct {
	key   string
	shown string // key for display, see node.ShowKey
	line  int
	value *yaml.Node
}

// pairs returns the entries of the mapping n in order. It reports duplicate keys and keys that
// are not plain text.
func (r *reader) pairs(n *yaml.Node, at location) []pair {
	n = node.Deref(n)
	if n.Kind != yaml.MappingNode {
		r.fail(at, "must be a mapping", "")
		return nil
	}
	var all []pair
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		here := at.child(key.Value, node.ShowKey(key.Value), key.Line)
		switch first := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.fail(location{key: at.key, line: key.Line}, "a key must be plain text", "")
		case key.Tag == "!!merge":
			r.fail(here, "merge keys are not supported",
				"write the keys out; what all backends share goes under defaults")
		case first > 0:
			r.fail(here, fmt.Sprintf("is already set on line %d", first), "")
		default:
			lines[key.Value] = key.Line
			all = append(all, pair{key.Value, node.ShowKey(key.Value), key.Line, value})
		}
	}
	return all
}
