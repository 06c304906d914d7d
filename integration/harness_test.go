//go:build unix

package integration

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// These tests check the harness without a gateway. A failure here is not the gateway's fault.

// connectDirect starts a stdio server and does the handshake.
func connectDirect(t testing.TB, b backend) *rawClient {
	t.Helper()
	c := startDirect(t, b)
	c.initialize("2025-11-25")
	return c
}

func startDirect(t testing.TB, b backend) *rawClient {
	t.Helper()
	s := newSetup(t, nil)
	cmd := exec.Command(b.Command, b.Args...)
	cmd.Env = s.env()
	for k, v := range b.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	c := startRaw(t, cmd)
	t.Cleanup(func() { c.cmd.Process.Kill() }) // half of the servers ignore end of file
	return c
}

func TestHarnessRealServersDirect(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]int{"everything": 13, "filesystem": 14, "memory": 9,
		"sequential-thinking": 1} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var args []string
			if server == "filesystem" {
				args = []string{t.TempDir()}
			}
			b := stdioBackend(t, server, server,
				map[string]string{"MEMORY_FILE_PATH": t.TempDir() + "/memory.jsonl"}, args...)
			if tools := listTools(t, connectDirect(t, b)); len(tools) != want {
				t.Errorf("%d tools, want %d: %q", len(tools), want, names(tools))
			}
		})
	}
	t.Run("everything over HTTP", func(t *testing.T) {
		t.Parallel()
		c := dialHTTP(t, everythingHTTP(t).url, "2025-11-25")
		if tools := listTools(t, c); len(tools) != 13 {
			t.Errorf("%d tools: %q", len(tools), names(tools))
		}
		const want = `{"content":[{"type":"text","text":"Echo: hi"}]}`
		if m := callTool(c, "echo", `{"message":"hi"}`); string(m.Result) != want {
			t.Errorf("echo: %s", m.Raw)
		}
	})
}

func TestHarnessHelpersDirect(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"mirror", "gosdk", "mcpgo", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			notes := t.TempDir() + "/notes"
			c := connectDirect(t, helperBackend(role, role, notes))
			tools := listTools(t, c)
			if len(tools) < 3 {
				t.Fatalf("tools: %q", names(tools))
			}
			if role == "mirror" || role == "stubborn" {
				return
			}
			c.sendRequest("7", "tools/call",
				`{"name":"hold","arguments":{},"_meta":{"progressToken":"p"}}`)
			c.await("progress", waitTimeout,
				func(m message) bool { return m.Method == "notifications/progress" })
			c.notify("notifications/cancelled", `{"requestId":7}`)
			awaitNote(t, notes, "cancelled")
			callTool(c, "grow", `{}`)
			c.await("list_changed", waitTimeout,
				func(m message) bool { return m.Method == "notifications/tools/list_changed" })
			if !slices.Contains(names(listTools(t, c)), "grown") {
				t.Error("the added tool is not listed")
			}
		})
	}
}

func TestHarnessInspectorDirect(t *testing.T) {
	t.Parallel()
	m := newSetup(t, nil).marker
	b := stdioBackend(t, "memory", "memory", nil)
	argv := append([]string{b.Command}, b.Args...)
	tools, took := inspectTools(t, m, argv)
	if !slices.Contains(tools, "read_graph") {
		t.Errorf("tools: %q", tools)
	}
	t.Logf("tools/list: %v", took)
	if took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if out := inspectCall(t, m, argv, "open_nodes", `{"names":["nobody"]}`); !strings.Contains(out,
		`"entities":[]`) {
		t.Errorf("open_nodes: %s", out)
	}
}
