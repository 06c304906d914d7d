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

// bare runs the gateway by way of a shell script, in which "$@" is its command line, in a session without a
// terminal and with no environment but the mark. It returns it and how to wait for its end.
func (s *setup) bare(script string, args ...string) (*exec.Cmd, chan struct{}) {
	s.t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "sh", gateway(s.t), "-c", s.config}, args...)...)
	cmd.Env = []string{markEnv + "=" + string(s.mark)}
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

// mustEndWith0 sends SIGTERM, after which it must end with 0.
func mustEndWith0(t testing.TB, cmd *exec.Cmd, exited chan struct{}) {
	t.Helper()
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%v after SIGTERM", cmd.ProcessState)
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
	}
}

// A gateway that listens needs nothing of what a login has: no terminal, no open descriptor, nobody who reads its
// log, no HOME, no PATH, no directory. Its stdin is /dev/null in all of these but the first.
func TestListensUnderASupervisor(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"with nothing open":                   `exec "$@" <&- >&- 2>&-`,
		"nobody reads its log":                `{ exec "$@" 2>&1; } | :`,
		"the log's disk is full":              `exec "$@" >/dev/full 2>&1`,
		"in a directory that takes no files":  `cd /proc/self && exec "$@"`,
		"in a directory that is gone":         `mkdir gone && cd gone && rmdir ../gone && exec "$@"`,
		"every signal that may be is ignored": `trap '' HUP INT QUIT PIPE USR1 USR2; exec "$@"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
				litter("mirror", ""), backend{Name: "demo", Embedded: "demo"})
			addr := "127.0.0.1:" + freePort(t)
			cmd, exited := s.bare(script, "serve", "--listen", addr)
			awaitListener(t, addr, exited)
			c := dialHTTP(t, "http://"+addr+"/mcp", "2025-11-25")
			for range 3 { // with what is logged of each
				if m := callTool(c, "mirror__request", `{}`); m.Result == nil {
					t.Errorf("request: %s", m.Raw)
				}
			}
			if strings.Contains(script, "|") { // the shell is not the gateway
				for _, p := range s.mark.processes() {
					if strings.HasPrefix(p.args, gateway(t)) {
						syscall.Kill(p.pid, syscall.SIGTERM)
					}
				}
				<-exited
			} else {
				mustEndWith0(t, cmd, exited)
			}
			s.mark.mustBeGone(t, 2*time.Second)
		})
	}
}

// A client on stdin and stdout is served on when nobody reads the log any more.
func TestServesOnWhenNobodyReadsItsLog(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, litter("mirror", ""))
	cmd := exec.Command("/bin/sh", "-c", `exec 3>&1; { exec "$@" 2>&1 >&3 3>&-; } | :`, "sh", gateway(t), "-c", s.config)
	cmd.Env, cmd.Dir = s.env(), s.dir
	gw := startRaw(t, cmd)
	gw.greet("2025-11-25")
	for range 3 {
		if m := callTool(gw, "mirror__request", `{}`); m.Result == nil {
			t.Errorf("request: %s", m.Raw)
		}
	}
	gw.finish(20 * time.Second) // the exit code is the shell's
	s.mark.mustBeGone(t, 0)
	gw.checkPure()
}

// Of the descriptors that it may have, a gateway takes all, and its children have what it was given.
func TestDescriptorsAreRaisedForTheGatewayAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limit")
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, leaving(actor("mirror", "mirror", ""), "ulimit -n > "+file+"; "))
	addr := "127.0.0.1:" + freePort(t)
	cmd, exited := s.bare(`ulimit -Sn 100; exec "$@"`, "serve", "--listen", addr)
	awaitListener(t, addr, exited)
	if got := awaitNote(t, file, "1"); got != "100" {
		t.Errorf("the child has %s", got)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max open files") && f[3] == "100" {
			t.Errorf("the gateway has %s", line)
		}
	}
	mustEndWith0(t, cmd, exited)
}

// With no descriptor left, whoever comes waits until one is free, and who is there goes on.
func TestOutOfDescriptorsClientsWait(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, actor("mirror", "mirror", ""))
	addr := "127.0.0.1:" + freePort(t)
	// With GATEWAY_DEBUG its descriptors may be counted by who is not root.
	cmd, exited := s.bare(`ulimit -n 64; export GATEWAY_DEBUG="$PWD/debug"; exec "$@"`, "serve", "--listen", addr)
	awaitListener(t, addr, exited)
	url := "http://" + addr + "/mcp"
	awaitReady(t, url)
	c := dialHTTP(t, url, "2025-11-25")
	var idle []net.Conn
	answered := true
	for range 100 { // the kernel takes them, whether the gateway does or not
		conn, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// With a request they are clients': others leave descriptors to them.
		if _, err := conn.Write([]byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		if answered { // until it accepts no more
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err = conn.Read(make([]byte, 1))
			answered = err == nil
		}
	}
	if !poll(patience, func() bool {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
		return err == nil && len(open) >= 63
	}) {
		t.Error("the descriptors are not used up")
	}
	if m := callTool(c, "request", `{}`); m.Result == nil {
		t.Errorf("who is there: %s", m.Raw)
	}
	for _, conn := range idle {
		conn.Close()
	}
	late := dialHTTP(t, url, "2025-11-25")
	if m := callTool(late, "request", `{}`); m.Result == nil {
		t.Errorf("who comes: %s", m.Raw)
	}
	mustEndWith0(t, cmd, exited)
}

// A backend for which there is no descriptor left fails alone, and says so.
func TestOutOfDescriptorsABackendFailsAlone(t *testing.T) {
	t.Parallel()
	var many []backend
	for i := range 20 {
		many = append(many, actor(fmt.Sprintf("b%d", i), "mirror", ""))
	}
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "2s"}}, many...)
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 64; exec "$@"`, "sh", gateway(t), "-c", s.config)
	cmd.Env, cmd.Dir = s.env(), s.dir
	gw := startRaw(t, cmd)
	gw.greet("2025-11-25")
	ok := 0
	if !poll(patience, func() bool { return strings.Contains(gw.logs(), "too many open files") }) {
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

// What cannot be written costs no call, and is said once.
func TestWhatCannotBeWrittenCostsNoCall(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		more map[string]any
		says string
	}{
		"the audit file's disk is full":    {map[string]any{"audit": map[string]any{"file": "/dev/full"}}, "no space left"},
		"a file is where the state goes":   {map[string]any{"state": filepath.Join(file, "state")}, "cannot write catalog cache"},
		"the state directory is read-only": {map[string]any{"state": "/proc/state"}, "cannot write catalog cache"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, c.more, actor("mirror", "mirror", ""))
			gw := s.start()
			gw.greet("2025-11-25")
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
			if n := strings.Count(gw.logs(), c.says); n != 1 {
				t.Errorf("%q is said %d times:\n%s", c.says, n, gw.logs())
			}
		})
	}
}
