package clientimport

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
)

// A format describes the files of a client.
type format struct {
	// function that recognizes the content of a file; nil = the key is sufficient, unless the key
	// is mcpServers, which many clients use.
	is   func(root, servers *yaml.Node) bool
	list bool // servers are a list, not a mapping
	read func(serverReader) importedServer
}

// formats contains the special formats, by the ID of the client. In the default format the servers
// are a mapping, and readCommon reads the entries.
var formats = map[string]format{
	"claude-code": {is: isClaudeCode, read: readCommon},
	"gemini":      {read: readGemini},
	"qwen":        {read: readGemini},
	"opencode":    {is: isOpencode, read: readOpencode},
	"crush":       {is: isCrush, read: readCommon},
	"codex":       {read: readCodex},
	"zed":         {read: readZed},
	"continue":    {is: isList, list: true, read: readContinue},
	"goose":       {is: isGoose, read: readGoose},
}

// formatOf returns the format of the files of c.
func formatOf(c *dialect.Client) format {
	if f, ok := formats[c.ID]; ok {
		return f
	}
	return format{read: readCommon}
}

// Readers of the entries of clients. A note lists the keys that a reader does not use, such as
// approvals and UI state.

// readCommon reads the keys that most clients have in common.
func readCommon(e serverReader) importedServer {
	s := importedServer{
		serverSettings: serverSettings{
			command: e.text("command"),
			args:    e.arguments(),
			env:     e.table("env"),
			cwd:     e.text("cwd"),
			url:     e.text(dialect.URLKeys...),
			headers: e.table("headers"),
			tools:   e.tools(),
		},
		disabledInClient: e.hasValue("disabled", "true"),
	}
	if limit := e.file.client.Timeout; limit.LimitsStart {
		s.startTimeout = e.timeout("timeout", limit.Unit)
	} else {
		s.callTimeout = e.timeout("timeout", limit.Unit)
	}
	s.disabledInClient = e.hasValue("enabled", "false") || s.disabledInClient
	kind := e.text(dialect.TransportKeys...)
	s.unsupported = dialect.UnsupportedTransport(kind)
	if dialect.IsSSE(kind) {
		s.transport = config.TransportSSE
	}
	return s
}

// readGemini reads entries of Gemini CLI, where httpUrl has precedence over url and is never SSE.
// In old versions a url without a type meant SSE; new versions try HTTP first, like auto.
func readGemini(e serverReader) importedServer {
	s := readCommon(e)
	if url := e.text("httpUrl"); url != "" {
		s.url, s.transport = url, ""
		e.markUnread("url")
	}
	return s
}

// readCodex reads entries of Codex, whose headers may come from variables.
func readCodex(e serverReader) importedServer {
	s := readCommon(e)
	s.headers = e.table("http_headers")
	s.inherit = e.list("env_vars")
	s.startTimeout, s.callTimeout = e.seconds("startup_timeout_sec"), e.seconds("tool_timeout_sec")
	e.markUnread("headers")
	for _, h := range e.table("env_http_headers") {
		s.headers = append(s.headers, namedValue{h.name, "${" + h.value + "}"})
	}
	if name := e.text("bearer_token_env_var"); name != "" {
		s.headers = append(s.headers, namedValue{"Authorization", "Bearer ${" + name + "}"})
	}
	return s
}

// readOpencode reads entries of opencode, in which one list contains the program and its arguments.
func readOpencode(e serverReader) importedServer {
	s := importedServer{
		serverSettings: serverSettings{
			env:     e.table("environment"),
			cwd:     e.text("cwd"),
			url:     e.text("url"),
			headers: e.table("headers"),
		},
		disabledInClient: e.hasValue("enabled", "false"),
	}
	if line := e.list("command"); len(line) > 0 {
		s.command, s.args = line[0], line[1:]
	}
	if kind := e.text("type"); kind != "" && kind != "local" && kind != "remote" {
		s.unsupported = "type must be local or remote" + node.Not(strings.TrimSpace(kind))
	}
	return s
}

// readZed reads entries of Zed. In old files a mapping contains the program, its arguments and its
// environment.
func readZed(e serverReader) importedServer {
	program := node.Child(e.node, "command")
	if program == nil || program.Kind != yaml.MappingNode {
		s := readCommon(e)
		e.readKeys["source"] = true
		if s.command == "" && s.url == "" {
			s.unsupported = "a Zed extension provides it"
		}
		return s
	}
	e.readKeys["command"], e.readKeys["source"] = true, true
	inner := e
	inner.node, inner.readKeys = program, map[string]bool{}
	return importedServer{
		serverSettings: serverSettings{
			command: inner.text("path", "command"), args: inner.arguments(),
			env: inner.table("env"),
		},
		disabledInClient: e.hasValue("enabled", "false"),
	}
}

// readContinue reads entries of Continue, which have headers under requestOptions and a timeout
// for the connection.
func readContinue(e serverReader) importedServer {
	s := readCommon(e)
	e.readKeys["name"] = true
	s.startTimeout = e.timeout("connectionTimeout", time.Millisecond)
	if options := e.get("requestOptions"); options != nil {
		inner := e
		inner.node, inner.readKeys = options, map[string]bool{}
		s.headers = append(s.headers, inner.table("headers")...)
		if inner.unreadKeys() != nil {
			e.markUnread("requestOptions")
		}
	}
	return s
}

// readGoose reads entries of Goose, which have different keys and store some variables in a
// keyring.
func readGoose(e serverReader) importedServer {
	s := importedServer{
		serverSettings: serverSettings{
			command:     e.text("cmd"),
			args:        e.arguments(),
			env:         e.table("envs"),
			url:         e.text("uri"),
			headers:     e.table("headers"),
			callTimeout: e.timeout("timeout", time.Second),
		},
		disabledInClient: e.hasValue("enabled", "false"),
	}
	for _, name := range e.list("env_keys") {
		s.env = append(s.env, namedValue{name, "${" + expand.VariableName(name) + "}"})
	}
	e.readKeys["name"], e.readKeys["description"], e.readKeys["display_name"],
		e.readKeys["bundled"] = true, true, true, true
	switch kind := e.text("type"); kind {
	case "stdio", "streamable_http", "":
	case "sse":
		s.transport = config.TransportSSE
	default:
		s.unsupported = "it is part of Goose (" + node.OneLine(kind) + ")"
	}
	return s
}
