//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A claude is Claude Code with an empty home directory.
type claude struct {
	t    testing.TB
	path string
	dir  string // home and working directory
	env  []string
}

// newClaude returns Claude Code with all switches that keep it off the network. Each process
// that it starts has the marker m.
func newClaude(t testing.TB, m envMarker, env ...string) *claude {
	t.Helper()
	needNPM(t)
	// The native binary of this platform; the package's own bin is a stub that an install script
	// would replace.
	found, _ := filepath.Glob(filepath.Join(packageDir, "node_modules", "@anthropic-ai",
		"claude-code-"+npmPlatform()+"*", "claude"))
	if len(found) == 0 {
		t.Fatalf("integration: npm has no Claude Code for %s", npmPlatform())
	}
	dir := t.TempDir()
	hasSecrets(filepath.Join(dir, ".claude", ".credentials.json"))
	return &claude{t: t, path: found[0], dir: dir, env: append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", markerEnv + "=" + string(m),
		// Discard port: nothing listens there.
		"ANTHROPIC_API_KEY=dummy", "ANTHROPIC_BASE_URL=http://127.0.0.1:9",
		// Offer all tools to the model at once instead of through a search tool.
		"ENABLE_TOOL_SEARCH=false",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1",
		"DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1",
	}, env...)}
}

// command returns a command of claude in a process group of its own.
func (c *claude) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	c.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs claude, which must succeed, and returns its stdout and the duration.
func (c *claude) run(args ...string) (string, time.Duration) {
	c.t.Helper()
	cmd := c.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		c.t.Fatalf("claude %.200q: %v after %v\nstdout: %s\nstderr: %s\n%s", args, err, took,
			&stdout, &stderr, c.mcpLogs())
	}
	return stdout.String(), took
}

// mcpLogs returns the logs of Claude Code about its servers.
func (c *claude) mcpLogs() string {
	var all strings.Builder
	filepath.WalkDir(filepath.Join(c.dir, ".cache"),
		func(path string, d os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".jsonl") {
				text, _ := os.ReadFile(path)
				all.WriteString(path + ":\n" + string(text) + "\n")
			}
			return nil
		})
	return all.String()
}

// script writes an MCP config with one server, gw, and returns the arguments for a run of these
// calls.
func (c *claude) script(argv []string, calls ...string) []string {
	c.t.Helper()
	return c.scriptFor(map[string]any{"command": argv[0], "args": argv[1:]}, calls...)
}

// scriptFor is like script, for a server in the format of Claude Code's configuration.
func (c *claude) scriptFor(server map[string]any, calls ...string) []string {
	c.t.Helper()
	config, _ := json.Marshal(map[string]any{"mcpServers": map[string]any{"gw": server}})
	path := filepath.Join(c.dir, "mcp.json")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		c.t.Fatal(err)
	}
	prompt := "run these"
	for _, call := range calls {
		prompt += "\nCALL " + call
	}
	return []string{"-p", prompt, "--mcp-config", path, "--strict-mcp-config", "--allowedTools",
		"mcp__gw", "--output-format", "text"}
}

// Tests the harness without a gateway: a failure here is not the gateway's fault.
func TestHarnessClaudeCodeDirect(t *testing.T) {
	t.Parallel()
	m := newSetup(t, nil).marker
	model := startModel(t)
	c := newClaude(t, m, "ANTHROPIC_BASE_URL="+model.url)
	server := npmServer(t, "everything")

	c.run(append([]string{"mcp", "add", "-s", "user", "gw", "--"}, server...)...)
	if out, took := c.run("mcp", "list"); !strings.Contains(out, "Connected") {
		t.Errorf("mcp list prints %q", out)
	} else {
		t.Logf("mcp list: %v", took)
	}

	out, took := c.run(c.script(server, `mcp__gw__echo {"message":"hi there"}`,
		`mcp__gw__get-sum {"a":2,"b":3}`)...)
	t.Logf("claude -p: %v", took)
	offered, results := model.record()
	if !slices.Contains(offered, "mcp__gw__get-sum") {
		t.Errorf("offered to the model: %q", offered)
	}
	want := []toolResult{{"mcp__gw__echo", "Echo: hi there", false},
		{"mcp__gw__get-sum", "The sum of 2 and 3 is 5.", false}}
	if !slices.Equal(results, want) {
		t.Errorf("results: %+v", results)
	}
	if !strings.Contains(out, "The sum of 2 and 3 is 5.") {
		t.Errorf("claude -p prints %q", out)
	}
	if _, err := os.Stat(filepath.Join(c.dir, ".claude", "telemetry")); err == nil {
		t.Error("Claude Code writes telemetry despite its switches")
	}
}
