package config

import (
	"bytes"
	"errors"
	"io"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
)

// foreignCheckLimit is the length in bytes up to which a file is examined for keys of ours. A longer one
// counts as ours.
const foreignCheckLimit = 1 << 20

// isForeign reports whether a gateway.yaml is a file of another program, as of Kubernetes: there is
// something in it, and no key at the top of any of its documents is one of ours, nor nearly.
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

// lineKey is a key at the begin of a line.
var lineKey = lazy.Regexp(`(?m)^["']?([A-Za-z][\w.-]*)["']?[ \t]*:(?:\s|$)`)

// isForeignText is isForeign for a file that cannot be parsed, such as a template of Helm.
func isForeignText(data []byte) bool {
	keys := lineKey().FindAllSubmatch(data, -1)
	for _, key := range keys {
		if isTopKey(string(key[1])) {
			return false
		}
	}
	return len(keys) > 0
}

// isTopKey reports whether a key is, or was probably meant to be, one that a file of ours or of
// another MCP client has at its top.
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
