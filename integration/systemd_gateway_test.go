//go:build linux

package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A notifySocket is a socket on which systemd receives the state of a service.
type notifySocket struct {
	t    *testing.T
	path string
	conn *net.UnixConn
}

func newNotifySocket(t *testing.T) *notifySocket {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &notifySocket{t, path, conn}
}

// next returns the next datagram other than WATCHDOG=1, unless keepAlive is true.
func (n *notifySocket) next(keepAlive bool) string {
	n.t.Helper()
	data := make([]byte, 4096)
	for {
		_ = n.conn.SetReadDeadline(time.Now().Add(waitTimeout))
		size, err := n.conn.Read(data)
		if err != nil {
			n.t.Fatalf("no notification: %v", err)
		}
		if text := string(data[:size]); keepAlive || text != "WATCHDOG=1" {
			return text
		}
	}
}

// await returns the first datagram that contains each text, and all datagrams before it.
func (n *notifySocket) await(texts ...string) (found string, before []string) {
	n.t.Helper()
	for {
		text := n.next(false)
		isMissing := func(part string) bool { return !strings.Contains(text, part) }
		if !slices.ContainsFunc(texts, isMissing) {
			return text, before
		}
		before = append(before, text)
	}
}

// systemd is told when the backends are settled, when a reload begins and ends, while the gateway
// works, and when it stops. No child process gets the socket.
func TestSystemdIsNotified(t *testing.T) {
	t.Parallel()
	socket := newNotifySocket(t)
	dir := t.TempDir()
	gate, environment := filepath.Join(dir, "gate"), filepath.Join(dir, "environment")
	s := newSetup(t, nil,
		backend{Name: "demo", Embedded: "demo"},
		backend{Name: "late", Command: "sh",
			InheritEnv: []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"},
			Args: []string{"-c", `env >"$1"; while ! [ -e "$0" ]; do sleep 0.01; done; exit 3`,
				gate, environment}})
	cmd := exec.Command(gateway(t), "serve", "-c", s.config, "--listen", "127.0.0.1:0")
	cmd.Env = s.env("NOTIFY_SOCKET="+socket.path, "WATCHDOG_USEC=600000")
	cmd.Dir = s.dir
	gw := startRaw(t, cmd)
	socket.await("STATUS=", "1 of 2 work", "starting: late")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, before := socket.await("READY=1", "STATUS=backends: 1 of 2 work; not: late (")
	for _, text := range before {
		if strings.Contains(text, "READY=1") {
			t.Errorf("ready before the backends were settled: %q", text)
		}
	}
	for range 2 {
		for socket.next(true) != "WATCHDOG=1" {
		}
	}
	if err := gw.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	reloading, _ := socket.await("RELOADING=1", "\nMONOTONIC_USEC=")
	_, usec, _ := strings.Cut(reloading, "MONOTONIC_USEC=")
	if at, err := strconv.ParseInt(usec, 10, 64); err != nil || at <= 0 {
		t.Errorf("time of the reload: %q", usec)
	}
	socket.await("READY=1")
	if err := gw.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	socket.await("STOPPING=1")
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	env, err := os.ReadFile(environment)
	if err != nil || strings.Contains(string(env), "NOTIFY_SOCKET") ||
		strings.Contains(string(env), "WATCHDOG_") {
		t.Errorf("environment of a backend: %v\n%s", err, env)
	}
}
