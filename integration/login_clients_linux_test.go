package integration

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
	"mcpgateway/internal/mcptest/proctest"
)

// runOnTerminal runs claude on a terminal, and returns what it shows.
func (c *claude) runOnTerminal(args ...string) string {
	c.t.Helper()
	tty, person := proctest.Terminal(c.t)
	cmd := c.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	tty.Close()
	var shown bytes.Buffer
	shown.ReadFrom(person) // until the last process has closed the terminal: then EIO
	if err := cmd.Wait(); err != nil {
		c.t.Fatalf("claude %q: %v\n%s\n%s", args, err, &shown, c.mcpLogs())
	}
	return shown.String()
}

// The Inspector and Claude Code find the authorization server of a gateway with auth.oauth by its
// challenge and its metadata, register, and log in with the browser. Without a login they show that
// one is needed. Their tokens reach no backend, log, audit record or file.
func TestOAuthClients_InspectorAndClaudeCode(t *testing.T) {
	t.Parallel()
	g := newOAuthGateway(t, oidctest.Options{}, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	browser := []string{"BROWSER=" + exe, helperEnv + "=helper-browser", "TERM=dumb"}

	inspect := func(env []string, more ...string) inspection {
		return runInspector(t, g.marker, env, append([]string{"--transport", "http", "--server-url",
			g.url, "--method", "tools/call", "--tool-name", "mirror__request"}, more...))
	}
	r := inspect(nil, "--stored-auth-only")
	if r.err == nil || !strings.Contains(r.stderr, `"code":"auth_required"`) ||
		!strings.Contains(r.stderr, "Unauthorized: log in at "+g.provider.Issuer()+", or send") {
		t.Errorf("the Inspector without a login: %v\n%s%s", r.err, r.stdout, r.stderr)
	}
	r = inspect(append(browser, "MCP_AUTO_OPEN_ENABLED=true", "MCP_INSPECTOR_SECRET_STORE=memory"),
		"--callback-url", "http://127.0.0.1:"+freePort(t)+"/oauth/callback")
	if r.err != nil || !strings.Contains(r.stdout, `"result":`) {
		t.Errorf("the Inspector with a login: %v\n%s%s", r.err, r.stdout, r.stderr)
	}

	model := startModel(t)
	c := newClaude(t, g.marker, append(browser, "ANTHROPIC_BASE_URL="+model.url)...)
	c.run("mcp", "add", "-s", "user", "--transport", "http", "gw", g.url)
	if out, _ := c.run("mcp", "list"); !strings.Contains(out, "Needs authentication") {
		t.Errorf("mcp list without a login prints %q\n%s", out, c.mcpLogs())
	}
	if out := c.runOnTerminal("mcp", "login", "gw"); !strings.Contains(out, "Authenticated with") {
		t.Errorf("mcp login shows %q\n%s", out, c.mcpLogs())
	}
	c.run("-p", "run these\nCALL mcp__gw__modern__who {}\nCALL mcp__gw__mirror__request {}",
		"--allowedTools", "mcp__gw", "--output-format", "text")
	if _, results := model.record(); len(results) != 2 || results[0].isError || results[1].isError {
		t.Errorf("results: %+v\n%s", results, c.mcpLogs())
	}

	for _, request := range g.provider.Requests(oidctest.AuthorizationEndpoint) {
		if request.Form.Get("resource") != g.url {
			t.Errorf("the resource is %q", request.Form.Get("resource"))
		}
	}
	if n := g.provider.Counts()[oidctest.RegistrationEndpoint]; n != 2 {
		t.Errorf("%d registrations", n)
	}
	g.checkSecrets(t, "oauth:user", 3)
}
