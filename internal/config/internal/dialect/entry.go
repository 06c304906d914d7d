package dialect

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/lazy"
)

// Keys of the entries of all clients, in the order of precedence.
var (
	URLKeys       = []string{"url", "serverUrl", "httpUrl"}
	TransportKeys = []string{"type", "transport"}
)

// UnsupportedTransport returns the reason if a transport is not supported; "" = it is supported.
// transport is the name in a client's file.
func UnsupportedTransport(transport string) string {
	switch normalizedTransport(transport) {
	case "", "stdio", "local", "http", "streamablehttp", "sse":
		return ""
	}
	if IsWebSocket(transport) {
		return "WebSocket is not supported"
	}
	return "must be stdio, http or sse" + node.Not(transport)
}

// IsWebSocket reports whether a transport is WebSocket.
func IsWebSocket(transport string) bool {
	name := normalizedTransport(transport)
	return name == "ws" || name == "websocket"
}

// IsSSE reports whether a transport is SSE. Only this transport is kept: auto replaces HTTP,
// because clients use the name HTTP for both kinds of servers.
func IsSSE(transport string) bool { return normalizedTransport(transport) == "sse" }

func normalizedTransport(transport string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(transport))
}

// CallTimeout parses a client's call timeout, given as a number of units; 0 = invalid. A value
// below one second is treated as a mistake, as in Claude Code.
func CallTimeout(text string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if d := n * float64(unit); err == nil && float64(time.Second) <= d &&
		d <= 1e6*float64(time.Second) {
		return time.Duration(d).Round(time.Millisecond)
	}
	return 0
}

// Inapplicable returns the keys of all clients that have no effect in an entry with a command and
// no URL, or with a URL and no command; nil for any other entry.
func Inapplicable(command, url bool) []string {
	switch {
	case command && !url:
		return []string{"headers", "http_headers", "env_http_headers", "bearer_token_env_var"}
	case url && !command:
		return []string{"args", "env", "environment", "env_vars", "envFile", "cwd"}
	}
	return nil
}

// IsEmpty reports whether a value can be ignored without loss: autoApprove: [].
func IsEmpty(n *yaml.Node) bool {
	return node.IsAbsent(n) || n.Kind != yaml.ScalarNode && len(n.Content) == 0
}

// IgnoredKeys describes the ignored keys of an entry.
func IgnoredKeys(keys []string) string {
	text := "keys "
	if len(keys) == 1 {
		text = "key "
	}
	return text + strings.Join(keys, ", ")
}

// VariablesSet returns the variables that a mapping sets, except for variables whose value contains
// their name: A: ${A}.
func VariablesSet(table *yaml.Node) map[string]bool {
	set := map[string]bool{}
	for name, value := range node.Children(table) {
		if expand.NameLength(name) == len(name) && name != "" &&
			!strings.Contains(value.Value, name) {
			set[name] = true
		}
	}
	return set
}

// EscapeEntryVariables replaces ${X} by $${X} in the arguments of an entry for each variable X that
// the entry sets, because mcp-remote and other programs expand such references themselves.
func EscapeEntryVariables(args, env *yaml.Node) *yaml.Node {
	set := VariablesSet(env)
	if len(set) == 0 || args.Kind != yaml.SequenceNode {
		return args
	}
	kept := *args
	kept.Content = nil
	for _, item := range args.Content {
		if n := node.Deref(item); n.Kind == yaml.ScalarNode {
			changed := *n
			changed.Value = ownReference().ReplaceAllStringFunc(n.Value, func(whole string) string {
				if set[whole[2:len(whole)-1]] {
					return "$" + whole
				}
				return whole
			})
			item = &changed
		}
		kept.Content = append(kept.Content, item)
	}
	return &kept
}

var ownReference = lazy.Regexp(`\$\{[A-Za-z_]\w*\}`)
