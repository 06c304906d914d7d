//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// inspect runs the MCP Inspector's CLI with argv as the server, and returns the printed result
// and the duration. The Inspector passes little of its environment on, so m is passed to the
// server with an option.
func inspect(
	t testing.TB, m envMarker, argv []string, options ...string,
) (json.RawMessage, time.Duration) {
	t.Helper()
	return inspectAny(t, m, append([]string{"-e", markerEnv + "=" + string(m)}, options...),
		append([]string{"--"}, argv...)...)
}

// inspectURL is like inspect, for a server at a URL.
func inspectURL(t testing.TB, m envMarker, url string, options ...string) json.RawMessage {
	t.Helper()
	result, _ := inspectAny(t, m, append([]string{"--transport", "http", "--server-url", url},
		options...))
	return result
}

func inspectAny(
	t testing.TB, m envMarker, options []string, server ...string,
) (json.RawMessage, time.Duration) {
	t.Helper()
	r := runInspector(t, m, nil, options, server...)
	var envelope struct{ Result json.RawMessage }
	if r.err == nil {
		r.err = json.Unmarshal([]byte(r.stdout), &envelope)
	}
	if r.err != nil || envelope.Result == nil {
		t.Fatalf("inspector %q: %v after %v\nstdout: %s\nstderr: %s", options, r.err, r.took,
			r.stdout, r.stderr)
	}
	return envelope.Result, r.took
}

// An inspection is the outcome of a run of the Inspector's CLI.
type inspection struct {
	stdout, stderr string
	err            error // exit code ≠ 0
	took           time.Duration
}

// runInspector is like inspect, but may fail. env is added to the environment of the Inspector.
func runInspector(
	t testing.TB, m envMarker, env, options []string, server ...string,
) inspection {
	t.Helper()
	args := []string{module(t, "@modelcontextprotocol", "inspector", "clients", "launcher", "build",
		"index.js"), "--cli",
		"--format", "json", "--connect-timeout", "60000"}
	args = append(append(args, options...), server...)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), args...)
	cmd.Dir = t.TempDir()
	hasSecrets(filepath.Join(cmd.Dir, ".mcp-inspector", "storage", "oauth.json"))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir,
		markerEnv + "=" + string(m)}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	return inspection{stdout.String(), stderr.String(), err, time.Since(began)}
}

// inspectCall calls a tool through the Inspector and returns the result as the Inspector prints
// it.
func inspectCall(t testing.TB, m envMarker, argv []string, tool, arguments string) string {
	t.Helper()
	result, _ := inspect(t, m, argv, "--method", "tools/call", "--tool-name", tool,
		"--tool-args-json", arguments)
	return string(result)
}

// inspectTools returns the tool names that the Inspector lists, in its order.
func inspectTools(t testing.TB, m envMarker, argv []string) ([]string, time.Duration) {
	t.Helper()
	result, took := inspect(t, m, argv, "--method", "tools/list")
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(result, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names, took
}
