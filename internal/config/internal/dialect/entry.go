package dialect

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/config/internal/expand"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
)

var (
	URLKeys       = []string{"url", "serverUrl", "httpUrl"}
	TransportKeys = []string{"type", "transport"}
)

// UnsupportedTransport says why a transport, by the name a client gave it, is not
// served; "" = it is.
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

func IsWebSocket(transport string) bool {
	name := normalizedTransport(transport)
	return name == "ws" || name == "websocket"
}

// IsSSE tells whether a transport is the one that must be kept. What clients call
// HTTP is left to auto: in their files it is said of servers of either kind.
func IsSSE(transport string) bool { return normalizedTransport(transport) == "sse" }

func normalizedTransport(transport string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(transport))
}

// CallTimeout reads a client's time limit for a call, given as a number of
// units; 0 = it is none. One below a second is taken for a mistake, as Claude
// Code does.
func CallTimeout(text string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if d := n * float64(unit); err == nil && float64(time.Second) <= d && d <= 1e6*float64(time.Second) {
		return time.Duration(d).Round(time.Millisecond)
	}
	return 0
}

// Inapplicable names the keys, of any client, that mean nothing beside a command or
// beside a URL.
func Inapplicable(command, url bool) []string {
	switch {
	case command && !url:
		return []string{"headers", "http_headers", "env_http_headers", "bearer_token_env_var"}
	case url && !command:
		return []string{"args", "env", "environment", "env_vars", "cwd"}
	}
	return nil
}

// IsEmpty tells whether leaving a value out loses nothing: autoApprove: [].
func IsEmpty(n *yaml.Node) bool {
	return node.IsAbsent(n) || n.Kind != yaml.ScalarNode && len(n.Content) == 0
}

// IgnoredKeys names the keys of a client's entry that are not taken over. If the entry is a program's,
// it says what to do about a file with variables.
func IgnoredKeys(keys []string, program bool) string {
	text := "keys "
	if len(keys) == 1 {
		text = "key "
	}
	text += strings.Join(keys, ", ")
	if program && slices.Contains(keys, "envFile") {
		text += "; copy the variables in envFile into env"
	}
	return text
}

// VariablesSet returns the variables that a table sets, less those that it only passes on.
func VariablesSet(table *yaml.Node) map[string]bool {
	own := map[string]bool{}
	for name, value := range node.Children(table) {
		if expand.NameLength(name) == len(name) && name != "" && !strings.Contains(value.Value, name) {
			own[name] = true
		}
	}
	return own
}

// EscapeEntryVariables returns arguments of another client's entry with $${X} in the place of ${X},
// where the entry sets X: mcp-remote and others expand it themselves.
func EscapeEntryVariables(args, env *yaml.Node) *yaml.Node {
	own := VariablesSet(env)
	if len(own) == 0 || args.Kind != yaml.SequenceNode {
		return args
	}
	kept := *args
	kept.Content = nil
	for _, item := range args.Content {
		if n := node.Deref(item); n.Kind == yaml.ScalarNode {
			changed := *n
			changed.Value = ownReference().ReplaceAllStringFunc(n.Value, func(whole string) string {
				if own[whole[2:len(whole)-1]] {
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
