//go:build unix

package main

import (
	"strings"
	"testing"
)

// A backend that lacks a variable is reported, and the other backends work.
func TestMisconfigured_F_CLI_11(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for name, text := range map[string]string{
		"gateway.yaml": "backends:\n- {name: docs, url: https://docs.invalid/mcp, headers: {Authorization: \"Bearer ${NO_DOCS_TOKEN}\"}}\n" +
			"- {name: demo, embedded: demo}\n",
		".mcp.json": `{"mcpServers": {"docs": {"url": "https://docs.invalid/mcp", "headers": {"Authorization": "Bearer ${NO_DOCS_TOKEN}"}}}, ` +
			`"state": "none"}`,
	} {
		path := file(t, name, text)
		const why = "variable NO_DOCS_TOKEN is not set: set it where the gateway is started"
		expect(t, exitFailed, "check -c "+path, "misconfigured", why, "backends failed")
		expect(t, exitFailed, "call docs__search -c "+path, "docs", why)
		if strings.HasSuffix(name, "yaml") {
			expect(t, exitOK, "call add a=1 b=2 -c "+path, "3")
		}
	}
}
