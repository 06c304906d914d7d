//go:build unix

package integration

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// gateway logs shows the lines that the client has thrown away, with those that a backend writes to
// stderr; -f shows further ones.
func TestLogs_WithoutStderr(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		backend{Name: "noisy", Command: "sh",
			Args: []string{"-c", `printf 'red \033[31m alert\n' >&2; exit 3`}})
	cmd := exec.Command(gateway(t), "-c", s.config)
	cmd.Env, cmd.Dir = s.env(), s.dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd.Stdout, cmd.Stderr = null, null
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := in.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` +
		initializeParams("2025-11-25") + "}\n")); err != nil {
		t.Fatal(err)
	}
	s.awaitStatus("a failed backend", func(all []statusReport) bool {
		return len(all) == 1 && len(all[0].Backends) == 2 && all[0].Backends[1].Reason != ""
	})
	var r commandResult
	if !poll(waitTimeout, func() bool {
		r = s.run("logs", "noisy")
		return strings.Contains(r.out, "red")
	}) || strings.Contains(r.out, "\x1b") || strings.Contains(r.out, "backend=demo") ||
		!strings.Contains(r.out, "alert") || !strings.Contains(r.out, "noisy") {
		t.Errorf("%q", r.out)
	}
	s.run("logs").expect(t, 0, "backend ready", "demo", "client connected")
	if r := s.run("logs", "--level", "warn", "-n", "5"); strings.Contains(r.out, "INFO") ||
		strings.Count(r.out, "\n") > 5 || !strings.Contains(r.out, "WARN") {
		t.Errorf("%s", r.out)
	}
	s.run("logs", "--since", "1h", "--json", "demo").expect(t, 0, `"msg":"backend ready"`,
		`"backend":"demo"`)
	s.run("logs", "--level", "loud").expect(t, 2, "debug, info, warn, error")
	s.run("logs", "-n", "x").expect(t, 2, "invalid argument")
	s.run("logs", "unknown").expect(t, 2, "no running gateway has a backend named unknown")

	follow := s.command("logs", "-f", "-n", "1", "demo")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("no earlier line")
	}
	s.run("restart", "demo").expect(t, 0)
	for lines.Scan() && !strings.Contains(lines.Text(), "restarted") {
	}
	if !strings.Contains(lines.Text(), "restarted") {
		t.Error("the restart is not shown")
	}
	follow.Process.Signal(syscall.SIGINT)
	if err := follow.Wait(); err != nil {
		t.Error(err)
	}
}
