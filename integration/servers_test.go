//go:build unix

package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// npmServer returns the command line of one of @modelcontextprotocol's servers over stdio.
func npmServer(t testing.TB, name string, args ...string) []string {
	t.Helper()
	main := module(t, "@modelcontextprotocol", "server-"+name, "dist", "index.js")
	return append([]string{node(t), main}, args...)
}

// stdioBackend returns that server as a backend of the gateway.
func stdioBackend(
	t testing.TB, name, server string, env map[string]string, args ...string,
) backend {
	t.Helper()
	argv := npmServer(t, server, args...)
	return backend{Name: name, Command: argv[0], Args: argv[1:], Env: env}
}

// An httpServer is server-everything over streamable HTTP, or over HTTP+SSE.
type httpServer struct {
	t         testing.TB
	mode      string // argument of the server
	url, port string
	kill      func() // returns when the process has exited
}

// everythingHTTP runs server-everything until the test ends.
func everythingHTTP(t testing.TB) *httpServer { return everythingOver(t, "streamableHttp", "/mcp") }

func everythingOver(t testing.TB, mode, path string) *httpServer {
	t.Helper()
	// Another process may take the port before the server does. Then the server exits: try
	// again.
	for range 5 {
		port := freePort(t)
		s := &httpServer{t: t, mode: mode, url: "http://127.0.0.1:" + port + path, port: port}
		if s.start() {
			return s
		}
	}
	t.Fatalf("server-everything does not start as %s", mode)
	return nil
}

// start waits until the server listens, and reports whether it does.
func (s *httpServer) start() bool {
	s.t.Helper()
	exited, kill := startServer(s.t, npmServer(s.t, "everything", s.mode), "PORT="+s.port)
	s.kill = kill
	up := false
	poll(waitTimeout, func() bool {
		select {
		case <-exited:
			return true
		default:
		}
		conn, err := net.DialTimeout("tcp", "127.0.0.1:"+s.port, time.Second)
		if err == nil {
			conn.Close()
		}
		up = err == nil
		return up
	})
	select {
	case <-exited:
		return false
	default:
		return up
	}
}

// startServer runs argv in a process group of its own, which is killed when the test ends, or
// before. Its output goes to a file that is printed if the test fails.
func startServer(t testing.TB, argv []string, env ...string) (exited <-chan struct{}, kill func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "output")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	kill = func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			text, _ := os.ReadFile(path)
			t.Logf("output of %s:\n%.8000s", argv[1], text)
		}
	})
	return ended, kill
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
