package config

import "strings"

// What the entries of the clients look like. A note names the keys that are not
// read here: what is approved, collapsed, kept in other files.

// readCommon reads what most clients agree on.
func readCommon(e entry) server {
	s := server{
		command:  e.text("command"),
		args:     e.list("args"),
		env:      e.table("env"),
		cwd:      e.text("cwd"),
		url:      e.text(urlKeys...),
		headers:  e.table("headers"),
		call:     e.limit("timeout", e.file.client.limit),
		tools:    e.tools(),
		disabled: e.is("disabled", "true"),
	}
	s.disabled = e.is("enabled", "false") || s.disabled
	kind := e.text(transportKeys...)
	s.unfit = unsupported(kind)
	if isSSE(kind) {
		s.transport = "sse"
	}
	return s
}

// readGemini differs in one point: httpUrl wins over url and is never SSE. An url
// of no type was SSE once; now Gemini tries HTTP first, as auto does.
func readGemini(e entry) server {
	s := readCommon(e)
	if url := e.text("httpUrl"); url != "" {
		s.url, s.transport = url, ""
		e.leave("url")
	}
	return s
}

// readCodex reads TOML, where headers may come from variables.
func readCodex(e entry) server {
	s := readCommon(e)
	s.headers = e.table("http_headers")
	s.inherit = e.list("env_vars")
	s.start, s.call = e.seconds("startup_timeout_sec"), e.seconds("tool_timeout_sec")
	e.leave("headers")
	for _, h := range e.table("env_http_headers") {
		s.headers = append(s.headers, named{h.name, "${" + h.value + "}"})
	}
	if name := e.text("bearer_token_env_var"); name != "" {
		s.headers = append(s.headers, named{"Authorization", "Bearer ${" + name + "}"})
	}
	return s
}

// readOpencode has the program and its arguments in one list.
func readOpencode(e entry) server {
	s := server{
		env:      e.table("environment"),
		cwd:      e.text("cwd"),
		url:      e.text("url"),
		headers:  e.table("headers"),
		disabled: e.is("enabled", "false"),
	}
	if line := e.list("command"); len(line) > 0 {
		s.command, s.args = line[0], line[1:]
	}
	if kind := e.text("type"); kind != "" && kind != "local" && kind != "remote" {
		s.unfit = "type must be local or remote" + not(strings.TrimSpace(kind))
	}
	return s
}
