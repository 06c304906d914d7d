//go:build unix

package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowly is a backend whose tool answers when the file that $GO names exists.
func slowly(t testing.TB, name string) (b backend, answer func()) {
	t.Helper()
	goes := filepath.Join(t.TempDir(), "go")
	script := `while read -r line; do
		id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
		case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"slow","version":"1"}}}' ;;
		*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"slow","inputSchema":{"type":"object"}}]}}' ;;
		*'"tools/call"'*) : >"$GO.called"; while ! [ -e "$GO" ]; do sleep 0.05; done
			echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"it ran"}]}}' ;;
		*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
		esac
	done`
	file := filepath.Join(t.TempDir(), "server.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return backend{Name: name, Command: "/bin/sh", Args: []string{file}, Env: map[string]string{"GO": goes}}, func() {
		if err := os.WriteFile(goes, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// called waits until a call has come to the backend.
func (b backend) called(t testing.TB) {
	t.Helper()
	if !poll(patience, func() bool { _, err := os.Stat(b.Env["GO"] + ".called"); return err == nil }) {
		t.Fatal("the call does not reach the backend")
	}
}

func TestSignalDrainsCalls_F_PROC_2(t *testing.T) {
	t.Parallel()
	const stdinEnds = syscall.Signal(0)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, stdinEnds} {
		name := "F-PROC-2 " + sig.String()
		if sig == stdinEnds {
			name = "F-PROC-2 end of stdin"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, answer := slowly(t, "slow")
			s := newSetup(t, nil, b)
			gw := s.start()
			gw.greet("2025-11-25")
			listTools(t, gw)
			gw.ask("7", "tools/call", `{"name":"slow"}`)
			b.called(t)
			if sig == stdinEnds {
				gw.stdin.Close()
			} else {
				gw.cmd.Process.Signal(sig)
			}
			if !poll(patience, func() bool { return strings.Contains(gw.logs(), "stopping") }) {
				t.Fatal("the end is not logged while calls run")
			}
			if sig != stdinEnds {
				gw.awaitRefusals()
				gw.ask("8", "tools/call", `{"name":"slow"}`)
				if m := gw.answer("8", patience); m.code() != -32603 || !strings.Contains(string(m.Error), "did not run") {
					t.Errorf("a new call: %s", m.Raw)
				}
			}
			<-time.After(1500 * time.Millisecond) // the row's call takes as long
			answer()
			if m := gw.answer("7", patience); !strings.Contains(string(m.Result), "it ran") {
				t.Errorf("the call in flight: %s", m.Raw)
			}
			if code := gw.exitCode(patience); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// awaitRefusals waits until the gateway refuses requests, which it does a moment after it has logged the
// signal.
func (c *rawClient) awaitRefusals() {
	c.t.Helper()
	n := 0
	if !poll(patience, func() bool {
		n++
		id := `"probe-` + itoa(int64(n)) + `"`
		c.ask(id, "tools/list", `{}`)
		return strings.Contains(string(c.answer(id, patience).Error), "did not run")
	}) {
		c.t.Fatal("the gateway refuses no request while it ends")
	}
}

// A second signal ends the calls; the end is still orderly.
func TestSecondSignalEndsCalls_F_PROC_2(t *testing.T) {
	t.Parallel()
	b, _ := slowly(t, "slow")
	s := newSetup(t, map[string]any{"limits": map[string]any{"drain": "60s"}}, b)
	gw := s.start()
	gw.greet("2025-11-25")
	listTools(t, gw)
	gw.ask("7", "tools/call", `{"name":"slow"}`)
	b.called(t)
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if !poll(patience, func() bool { return strings.Contains(gw.logs(), "SIGTERM: stopping") }) {
		t.Fatal("the end is not logged while calls run")
	}
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if m := gw.answer("7", patience); !strings.Contains(string(m.Error), "outcome unknown") {
		t.Errorf("the call in flight: %s", m.Raw)
	}
	if code := gw.exitCode(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Over HTTP the gateway is not ready while calls end, refuses new sessions and answers the old calls.
func TestSignalDrainsHTTP_F_PROC_2(t *testing.T) {
	t.Parallel()
	b, answer := slowly(t, "slow")
	s := newSetup(t, nil, b)
	addr := "127.0.0.1:" + freePort(t)
	gw := s.start("serve", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	url := "http://" + addr + "/mcp"
	c := dialHTTP(t, url, "2025-11-25")
	listTools(t, c)
	ended := make(chan message, 1)
	go func() { ended <- c.call("tools/call", `{"name":"slow"}`) }()
	b.called(t)
	gw.cmd.Process.Signal(syscall.SIGTERM)
	base := strings.TrimSuffix(url, "/mcp")
	status := func(method, path string) string {
		req, err := http.NewRequest(method, base+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error()
		}
		res.Body.Close()
		return fmt.Sprint(res.StatusCode)
	}
	if !poll(patience, func() bool { return status("GET", "/readyz") == "503" }) {
		t.Errorf("readyz: %s", status("GET", "/readyz"))
	}
	if got := status("POST", "/mcp"); got != "503" {
		t.Errorf("a new session: %s", got)
	}
	answer()
	if m := next(t, "the call's answer", ended); !strings.Contains(string(m.Result), "it ran") {
		t.Errorf("the call in flight: %s", m.Raw)
	}
	if code := gw.exitCode(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
