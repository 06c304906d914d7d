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

// slowBackend returns a backend whose tool responds when the file that $GO names exists.
func slowBackend(t testing.TB, name string) (b backend, respond func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "go")
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
	return backend{Name: name, Command: "/bin/sh", Args: []string{file},
			Env: map[string]string{"GO": path}}, func() {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
}

// awaitCall waits until the backend has received a call.
func (b backend) awaitCall(t testing.TB) {
	t.Helper()
	if !poll(waitTimeout,
		func() bool { _, err := os.Stat(b.Env["GO"] + ".called"); return err == nil }) {
		t.Fatal("the backend does not receive the call")
	}
}

func TestDrain_SignalWaitsForCalls_F_PROC_2(t *testing.T) {
	t.Parallel()
	const stdinEnds = syscall.Signal(0)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, stdinEnds} {
		name := "F-PROC-2 " + sig.String()
		if sig == stdinEnds {
			name = "F-PROC-2 end of stdin"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, respond := slowBackend(t, "slow")
			s := newSetup(t, nil, b)
			gw := s.start()
			gw.initialize("2025-11-25")
			listTools(t, gw)
			gw.sendRequest("7", "tools/call", `{"name":"slow"}`)
			b.awaitCall(t)
			if sig == stdinEnds {
				gw.stdin.Close()
			} else {
				gw.cmd.Process.Signal(sig)
			}
			if !poll(waitTimeout, func() bool { return strings.Contains(gw.logs(), "stopping") }) {
				t.Fatal("the shutdown is not logged while calls run")
			}
			if sig != stdinEnds {
				gw.awaitRejections()
				gw.sendRequest("8", "tools/call", `{"name":"slow"}`)
				if m := gw.awaitResponse("8", waitTimeout); m.code() != -32603 ||
					!strings.Contains(string(m.Error), "did not run") {
					t.Errorf("a new call: %s", m.Raw)
				}
			}
			<-time.After(1500 * time.Millisecond) // the call takes this long in the reported case
			respond()
			if m := gw.awaitResponse("7", waitTimeout); !strings.Contains(string(m.Result),
				"it ran") {
				t.Errorf("the call in flight: %s", m.Raw)
			}
			if code := gw.exitCode(waitTimeout); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// awaitRejections waits until the gateway rejects requests, which begins a moment after it has
// logged the signal.
func (c *rawClient) awaitRejections() {
	c.t.Helper()
	n := 0
	if !poll(waitTimeout, func() bool {
		n++
		id := `"probe-` + itoa(int64(n)) + `"`
		c.sendRequest(id, "tools/list", `{}`)
		return strings.Contains(string(c.awaitResponse(id, waitTimeout).Error), "did not run")
	}) {
		c.t.Fatal("the draining gateway does not reject requests")
	}
}

// A second signal cancels the calls; the shutdown is still orderly.
func TestDrain_SecondSignalEndsCalls_F_PROC_2(t *testing.T) {
	t.Parallel()
	b, _ := slowBackend(t, "slow")
	s := newSetup(t, map[string]any{"limits": map[string]any{"drain": "60s"}}, b)
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.sendRequest("7", "tools/call", `{"name":"slow"}`)
	b.awaitCall(t)
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if !poll(waitTimeout, func() bool { return strings.Contains(gw.logs(), `"signal received: stopping" text=SIGTERM`) }) {
		t.Fatal("the shutdown is not logged while calls run")
	}
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if m := gw.awaitResponse("7", waitTimeout); !strings.Contains(string(m.Error),
		"outcome unknown") {
		t.Errorf("the call in flight: %s", m.Raw)
	}
	if code := gw.exitCode(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Over HTTP a draining gateway is not ready, rejects new sessions and completes the calls in
// flight.
func TestDrain_OverHTTP_F_PROC_2(t *testing.T) {
	t.Parallel()
	b, respond := slowBackend(t, "slow")
	s := newSetup(t, nil, b)
	addr := "127.0.0.1:" + freePort(t)
	gw := s.start("serve", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	url := "http://" + addr + "/mcp"
	c := dialHTTP(t, url, "2025-11-25")
	listTools(t, c)
	ended := make(chan message, 1)
	go func() { ended <- c.call("tools/call", `{"name":"slow"}`) }()
	b.awaitCall(t)
	gw.cmd.Process.Signal(syscall.SIGTERM)
	base := strings.TrimSuffix(url, "/mcp")
	status := func(method, path string) string {
		req, err := http.NewRequest(method, base+path,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`))
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
	if !poll(waitTimeout, func() bool { return status("GET", "/readyz") == "503" }) {
		t.Errorf("readyz: %s", status("GET", "/readyz"))
	}
	if got := status("POST", "/mcp"); got != "503" {
		t.Errorf("a new session: %s", got)
	}
	respond()
	if m := next(t, "response of the call", ended); !strings.Contains(string(m.Result), "it ran") {
		t.Errorf("the call in flight: %s", m.Raw)
	}
	if code := gw.exitCode(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
