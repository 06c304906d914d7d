package clientimport

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/node"
)

// recognize returns the client of a file, which it recognizes by name and content, or by content
// alone; nil = unknown.
func recognize(path string, root *yaml.Node) *dialect.Client {
	for i, c := range dialect.Clients {
		if c.Matches(path) && fits(&c, root) {
			return &dialect.Clients[i]
		}
	}
	for i, c := range dialect.Clients {
		is := c.Key != "mcpServers" || c.ID == "other"
		if f := formatOf(&c); f.is != nil {
			is = f.is(root, lookUpPath(root, c.Key))
		}
		if is && c.Key != "" && fits(&c, root) {
			return &dialect.Clients[i]
		}
	}
	return nil
}

// fits reports whether a file has a mapping or list of servers, which may be empty, under the key
// of c. For Claude Code, the key projects suffices.
func fits(c *dialect.Client, root *yaml.Node) bool {
	kind := yaml.MappingNode
	if formatOf(c).list {
		kind = yaml.SequenceNode
	}
	servers := lookUpPath(root, c.Key)
	return servers != nil && servers.Kind == kind ||
		c.ID == "claude-code" && node.Child(root, "projects") != nil
}

// lookUpPath returns the value of a key; nil = none. The key a.b means b within a, or a single key
// a.b, which occurs in files of settings.
func lookUpPath(root *yaml.Node, key string) *yaml.Node {
	if key == "" {
		return nil
	}
	if n := node.Child(root, key); n != nil {
		return n
	}
	if outer, inner, ok := strings.Cut(key, "."); ok {
		return lookUpPath(node.Child(root, outer), inner)
	}
	return nil
}

// The functions below recognize a client by the content of a file, because several clients use the
// same key.

// isClaudeCode recognizes ~/.claude.json under another name.
func isClaudeCode(root, _ *yaml.Node) bool {
	projects := node.Child(root, "projects")
	return projects != nil && projects.Kind == yaml.MappingNode ||
		node.Child(root, "numStartups") != nil
}

// isOpencode recognizes entries of type local or remote, or with a list as command.
func isOpencode(root, servers *yaml.Node) bool {
	return schemaMentions(root, "opencode") || anyEntry(servers, func(e *yaml.Node) bool {
		kind, command := node.Child(e, "type"), node.Child(e, "command")
		return kind != nil && (kind.Value == "local" || kind.Value == "remote") ||
			command != nil && command.Kind == yaml.SequenceNode
	})
}

// isCrush recognizes entries of the common form under mcp.
func isCrush(root, servers *yaml.Node) bool {
	return schemaMentions(root, "crush") || anyEntry(servers, func(e *yaml.Node) bool {
		command, url := node.Child(e, "command"), node.Child(e, "url")
		return command != nil && command.Kind == yaml.ScalarNode || url != nil
	})
}

// isGoose recognizes extensions with a program or a URL.
func isGoose(_, servers *yaml.Node) bool {
	return anyEntry(servers, func(e *yaml.Node) bool {
		return node.Child(e, "cmd") != nil || node.Child(e, "uri") != nil
	})
}

func isList(_, servers *yaml.Node) bool {
	return servers != nil && servers.Kind == yaml.SequenceNode
}

func schemaMentions(root *yaml.Node, word string) bool {
	n := node.Child(root, "$schema")
	return n != nil && strings.Contains(n.Value, word)
}

func anyEntry(servers *yaml.Node, is func(*yaml.Node) bool) bool {
	for _, e := range node.Children(servers) {
		if e.Kind == yaml.MappingNode && is(e) {
			return true
		}
	}
	return false
}

// unknownFormat describes the reason if no servers could be read from a file.
func unknownFormat(path string, root *yaml.Node) (problem, hint string) {
	for _, c := range dialect.Clients {
		if c.Key == "" && c.Matches(path) {
			return "is a file of " + c.Title + ", which is not supported",
				"add its servers to the configuration yourself"
		}
	}
	var keys []string
	for key := range node.Children(root) {
		lower := strings.ToLower(key)
		if strings.Contains(lower, "mcp") || strings.Contains(lower, "server") ||
			lower == "extensions" || lower == "tools" {
			keys = append(keys, node.ShowKey(key))
		}
	}
	problem, hint = "contains no MCP servers in a known format",
		"they are expected under mcpServers, servers, mcp or mcp_servers"
	if len(keys) > 0 {
		slices.Sort(keys)
		problem += ": no known client uses " + strings.Join(keys, ", ") + " in this form"
	}
	return problem, hint
}
