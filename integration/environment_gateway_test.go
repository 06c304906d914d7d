//go:build linux

package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startBare runs the gateway through a shell script, in which "$@" is its command line, in a
// session without a terminal and with only the marker in the environment. It returns the command
// and a channel that is closed when the command has exited.
func (s *setup) startBare(script string, args ...string) (*exec.Cmd, chan struct{}) {
	s.t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "sh", gateway(s.t), "-c",
		s.config}, args...)...)
	cmd.Env = []string{markerEnv + "=" + string(s.marker)}
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	s.t.Cleanup(func() { cmd.Process.Kill(); <-exited })
	return cmd, exited
}

// terminate sends SIGTERM and checks that the command exits with 0.
func terminate(t testing.TB, cmd *exec.Cmd, exited chan struct{}) {
	t.Helper()
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%v after SIGTERM", cmd.ProcessState)
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not exit")
	}
}

// A listening gateway needs nothing that a login session has: no terminal, no open descriptor,
// no reader of its log, no HOME, no PATH, no directory. Its stdin is /dev/null in all cases but
// the first.
func TestServe_MinimalEnvironment(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"no open descriptors":     `exec "$@" <&- >&- 2>&-`,
		"log pipe without reader": `{ exec "$@" 2>&1; } | :`,
		"log on a full disk":      `exec "$@" >/dev/full 2>&1`,
		"read-only directory":     `cd /proc/self && exec "$@"`,
		"removed directory":       `mkdir gone && cd gone && rmdir ../gone && exec "$@"`,
		"ignored signals":         `trap '' HUP INT QUIT PIPE USR1 USR2; exec "$@"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
				orphaningBackend("mirror", ""), backend{Name: "demo", Embedded: "demo"})
			addr := "127.0.0.1:" + freePort(t)
			cmd, exited := s.startBare(script, "serve", "--listen", addr)
			awaitListener(t, addr, exited)
			c := dialHTTP(t, "http://"+addr+"/mcp", "2025-11-25")
			for range 3 { // each call is logged
				if m := callTool(c, "mirror__request", `{}`); m.Result == nil {
					t.Errorf("request: %s", m.Raw)
				}
			}
			if strings.Contains(script, "|") { // the started process is the shell, not the gateway
				for _, p := range s.marker.processes() {
					if strings.HasPrefix(p.args, gateway(t)) {
						syscall.Kill(p.pid, syscall.SIGTERM)
					}
				}
				<-exited
			} else {
				terminate(t, cmd, exited)
			}
			s.marker.requireNoProcesses(t, 2*time.Second)
		})
	}
}

// A stdio client is still served when the log pipe has no reader.
func TestStdio_LogPipeWithoutReader(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, orphaningBackend("mirror", ""))
	cmd := exec.Command("/bin/sh", "-c", `exec 3>&1; { exec "$@" 2>&1 >&3 3>&-; } | :`, "sh",
		gateway(t), "-c", s.config)
	cmd.Env, cmd.Dir = s.env(), s.dir
	gw := startRaw(t, cmd)
	gw.initialize("2025-11-25")
	for range 3 {
		if m := callTool(gw, "mirror__request", `{}`); m.Result == nil {
			t.Errorf("request: %s", m.Raw)
		}
	}
	gw.finish(20 * time.Second) // the result is the exit code of the shell, and is not checked
	s.marker.requireNoProcesses(t, 0)
	gw.checkPure()
}

// The gateway raises its limit of descriptors to the maximum, and its children get the original
// limit.
func TestFileLimit_RaisedForGatewayOnly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limit")
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		withPrelude(helperBackend("mirror", "mirror", ""), "ulimit -n > "+file+"; "))
	addr := "127.0.0.1:" + freePort(t)
	cmd, exited := s.startBare(`ulimit -Sn 100; exec "$@"`, "serve", "--listen", addr)
	awaitListener(t, addr, exited)
	if got := awaitNote(t, file, "1"); got != "100" {
		t.Errorf("the child's limit is %s", got)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max open files") && f[3] == "100" {
			t.Errorf("the gateway's limit is %s", line)
		}
	}
	terminate(t, cmd, exited)
}

// When no descriptor is left, new clients wait until one is free, and connected clients
// continue.
func TestFileLimit_NewClientsWait(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		helperBackend("mirror", "mirror", ""))
	addr := "127.0.0.1:" + freePort(t)
	// With GATEWAY_DEBUG a user who is not root may count the descriptors of the process.
	cmd, exited := s.startBare(`ulimit -n 64; export GATEWAY_DEBUG="$PWD/debug"; exec "$@"`,
		"serve", "--listen", addr)
	awaitListener(t, addr, exited)
	url := "http://" + addr + "/mcp"
	awaitReady(t, url)
	c := dialHTTP(t, url, "2025-11-25")
	var idle []net.Conn
	answered := true
	for range 100 { // the kernel accepts them, whether or not the gateway does
		conn, err := net.DialTimeout("tcp", addr, waitTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// A connection with a request counts as a client. Beyond a limit, the gateway closes the
		// oldest connection without a request.
		if _, err := conn.Write(
			[]byte(
				"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		if answered { // wait for the response, until the gateway stops accepting
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err = conn.Read(make([]byte, 1))
			answered = err == nil
		}
	}
	if !poll(waitTimeout, func() bool {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
		return err == nil && len(open) >= 63
	}) {
		t.Error("there are descriptors left")
	}
	if m := callTool(c, "request", `{}`); m.Result == nil {
		t.Errorf("connected client: %s", m.Raw)
	}
	for _, conn := range idle {
		conn.Close()
	}
	late := dialHTTP(t, url, "2025-11-25")
	if m := callTool(late, "request", `{}`); m.Result == nil {
		t.Errorf("new client: %s", m.Raw)
	}
	terminate(t, cmd, exited)
}

// Only the backend that gets no descriptor fails, with an error.
func TestFileLimit_BackendStartFailsAlone(t *testing.T) {
	t.Parallel()
	var many []backend
	for i := range 20 {
		many = append(many, helperBackend(fmt.Sprintf("b%d", i), "mirror", ""))
	}
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "2s"}}, many...)
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 64; exec "$@"`, "sh", gateway(t), "-c",
		s.config)
	cmd.Env, cmd.Dir = s.env(), s.dir
	gw := startRaw(t, cmd)
	gw.initialize("2025-11-25")
	ok := 0
	if !poll(waitTimeout,
		func() bool { return strings.Contains(gw.logs(), "too many open files") }) {
		t.Error("no backend has failed")
	}
	for i := range many {
		name := fmt.Sprintf("b%d__request", i)
		if m := callTool(gw, name, `{}`); m.Result != nil {
			ok++
		} else if !strings.Contains(string(m.Error), "too many open files") {
			t.Errorf("%s: %s", name, m.Raw)
		}
	}
	if ok == 0 || ok == len(many) {
		t.Errorf("%d of %d backends work", ok, len(many))
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
}

// Write failures do not affect calls, and are logged once.
func TestWriteFailure_CallsSucceedAndOneWarning(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		more map[string]any
		log  string
	}{
		"audit file on a full disk": {map[string]any{"audit": map[string]any{"file": "/dev/full"}},
			"no space left"},
		"state path is a file": {map[string]any{"state": filepath.Join(file, "state")},
			"cannot write catalog cache"},
		"read-only state directory": {map[string]any{"state": "/proc/state"},
			"cannot write catalog cache"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, c.more, helperBackend("mirror", "mirror", ""))
			gw := s.start()
			gw.initialize("2025-11-25")
			listTools(t, gw)
			for range 50 {
				if m := callTool(gw, "request", `{}`); m.Result == nil {
					t.Fatalf("request: %s", m.Raw)
				}
			}
			if code := gw.finish(20 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			gw.checkPure()
			if n := strings.Count(gw.logs(), c.log); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", c.log, n, gw.logs())
			}
		})
	}
}
