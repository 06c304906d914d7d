package clientimport

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/node"
)

// parseTOML parses TOML and returns YAML nodes.
func parseTOML(file string, data []byte) (*yaml.Node, *config.Error) {
	var all map[string]any
	if err := toml.Unmarshal(data, &all); err != nil {
		e := &config.Error{File: file, Problem: "not valid TOML"}
		if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
			e.Line, _ = at.Position()
		}
		return nil, e
	}
	root := fromTOML(all)
	if servers := node.Child(root, "mcp_servers"); servers != nil {
		sortByFileOrder(servers, string(data))
	}
	return root, nil
}

// fromTOML converts decoded TOML into nodes, with sorted keys.
func fromTOML(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, node.String(key), fromTOML(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			n.Content = append(n.Content, fromTOML(item))
		}
		return n
	}
	return node.String(fmt.Sprint(v))
}

// sortByFileOrder sorts tables by the position of their headers, tables without a header last.
// The order decides which backend keeps an unprefixed name.
func sortByFileOrder(servers *yaml.Node, data string) {
	type table struct {
		at         int
		key, value *yaml.Node
	}
	var tables []table
	for i := 0; i+1 < len(servers.Content); i += 2 {
		key := servers.Content[i]
		header := regexp.MustCompile(`(?m)^\s*\[mcp_servers\.["']?` + regexp.QuoteMeta(key.Value) +
			`["'\].]`)
		at := len(data)
		if found := header.FindStringIndex(data); found != nil {
			at = found[0]
		}
		tables = append(tables, table{at, key, servers.Content[i+1]})
	}
	slices.SortStableFunc(tables, func(a, b table) int { return a.at - b.at })
	servers.Content = nil
	for _, t := range tables {
		servers.Content = append(servers.Content, t.key, t.value)
	}
}
