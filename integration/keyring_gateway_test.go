//go:build linux

package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/mcptest/keyringtest"
)

// TestKeyringCLI runs testdata/keyring/*.txtar, each with a keyring of its own: gateway secret, and
// gateway import with --keyring and --env-file. $URL is the URL of a server that requires the token
// s3nt1nel-docs-token.
func TestKeyringCLI(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(requireToken("Bearer s3nt1nel-docs-token"))
	t.Cleanup(server.Close)
	everySecret.add("s3nt1nel", &knownSecret{t.Name(), "each secret", inArguments})
	runScripts(t, "testdata/keyring", func() []string {
		return append(keyringtest.Start(t).Env, "URL="+server.URL+"/mcp")
	}, "mcp.json", "home.json", "other.json", "broken.env", "value", "other", "wrong")
}

// requireToken returns an MCP server with the tool ping that requires a value of Authorization.
func requireToken(value string) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "ping"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			pong := []mcp.Content{&mcp.TextContent{Text: "pong"}}
			return &mcp.CallToolResult{Content: pong}, nil, nil
		})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != value {
			http.Error(w, "wrong token", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// A backend whose secret is not in the keyring is misconfigured; SIGHUP reads the keyring again.
// Several gateways may use and change the keyring at the same time.
func TestKeyring_MisconfiguredIsRetriedOnReload(t *testing.T) {
	t.Parallel()
	ring := keyringtest.Start(t)
	b := weather("late", "")
	b.Env["WEATHER_VERSION"] = "${keyring:weather/version}"
	b.Env["TOKEN"] = "${keyring:weather/token}"
	s := newSetup(t, nil, b, weather("other", "1"))
	run := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command(gateway(t), args...)
		cmd.Env, cmd.Dir, cmd.Stdin = s.env(ring.Env...), s.dir, strings.NewReader(stdin)
		out, err := combinedOutput(t, cmd)
		if err != nil {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	cmd := exec.Command(gateway(t), "-c", s.config)
	cmd.Env, cmd.Dir = s.env(ring.Env...), s.dir
	gw := startRaw(t, cmd)
	log := gw.logReader()
	const missing = "${keyring:weather/version}: not found in the keyring: " +
		"gateway secret set weather/version stores it"
	log.await("misconfigured backend not started", "backend=late", missing)
	gw.initialize("2025-11-25")
	if m := callTool(gw, "other_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	if m := callTool(gw, "late__x", `{}`); !strings.Contains(string(m.Raw), missing) {
		t.Errorf("%s", m.Raw)
	}
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		all.Go(func() { run("x", "secret", "set", name) })
	}
	all.Wait()
	run(secret(t, "in the keyring"), "secret", "set", "weather/token")
	run("v-one\n", "secret", "set", "weather/version")
	if got := run("", "secret", "list"); got != "a\nb\nc\nweather/token\nweather/version\n" {
		t.Errorf("%q", got)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(logReloaded, "late", "started")
	if m := callTool(gw, "late_who", `{}`); !strings.Contains(string(m.Raw), "v-one") {
		t.Errorf("%s", m.Raw)
	}
	run("v-two", "secret", "set", "weather/version")
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(logReloaded, "late (env.WEATHER_VERSION; restarted)")
	if m := callTool(gw, "late_who", `{}`); !strings.Contains(string(m.Raw), "v-two") {
		t.Errorf("%s", m.Raw)
	}
	// Without the secret, the running backend keeps its value.
	run("", "secret", "rm", "weather/version")
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await("new entry of the backend misconfigured: keeping the old entry", missing)
	if m := callTool(gw, "late_who", `{}`); !strings.Contains(string(m.Raw), "v-two") {
		t.Errorf("%s", m.Raw)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
