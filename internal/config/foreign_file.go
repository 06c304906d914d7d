package config

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/lazy"
)

// foreignCheckLimit is the length, in bytes, of the longest file that isForeign examines. A longer
// file is not considered foreign.
const foreignCheckLimit = 1 << 20

// isForeign reports whether a gateway.yaml belongs to another program, such as Kubernetes. This is
// the case if the file is not empty, and none of its documents has a top-level key that is, or
// resembles, a top-level key of the gateway or of another MCP client.
func isForeign(data []byte) bool {
	if len(data) > foreignCheckLimit {
		return false
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for some := false; ; {
		var document yaml.Node
		err := dec.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return some
		case err != nil:
			return isForeignText(data)
		}
		root := node.Deref(document.Content[0])
		if node.IsAbsent(root) {
			continue
		}
		some = true
		if root.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i < len(root.Content); i += 2 {
			if isTopKey(node.Deref(root.Content[i]).Value) {
				return false
			}
		}
	}
}

// lineKey matches a key at the beginning of a line.
var lineKey = lazy.Regexp(`(?m)^["']?([A-Za-z][\w.-]*)["']?[ \t]*:(?:\s|$)`)

// isForeignText reports whether a file that cannot be parsed, such as a Helm template, belongs to
// another program.
func isForeignText(data []byte) bool {
	keys := lineKey().FindAllSubmatch(data, -1)
	for _, key := range keys {
		if isTopKey(string(key[1])) {
			return false
		}
	}
	return len(keys) > 0
}

// isTopKey reports whether a key is, or resembles, a top-level key of a configuration of the
// gateway or of another MCP client.
func isTopKey(key string) bool {
	names := []string{"mcpServers", "servers", "mcp", "mcp_servers"}
	for _, f := range fields(settingsType) {
		names = append(names, f.key)
	}
	for _, name := range names {
		if key == name {
			return true
		}
	}
	_, near := Nearest(key, names)
	return near && len(key) > 3
}
