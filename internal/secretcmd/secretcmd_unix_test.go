//go:build unix

package secretcmd

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/proctest"
)

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestOutputIsTheFirstLine(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{shell("echo one; echo two"), "one"},
		{shell("printf one"), "one"},
		{shell(`printf 'one\r\ntwo'`), "one"},
		{shell("echo '  a b '"), "  a b "},
		{shell("echo one; echo problem >&2"), "one"},
		{shell("cat; echo end"), "end"},                                        // stdin is empty
		{[]string{"printf", "%s", "$HOME $(id) `id` *"}, "$HOME $(id) `id` *"}, // no shell
		{shell("echo one; head -c 10000000 /dev/zero"), "one"},
	} {
		if got, err := Output(t.Context(), c.words, nil); got != c.want || err != nil {
			t.Errorf("%q: %q, %v", c.words, got, err)
		}
	}
}

func TestOutputErrors(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"no-such-program"}, `there is no program "no-such-program" in PATH`},
		{[]string{"/no/such/program"}, "it cannot be started: no such file or directory"},
		{[]string{"/etc/passwd"}, "it cannot be started: permission denied"},
		{shell("exit 3"), "it ended with exit status 3"},
		{shell("echo not signed in >&2; exit 1"), "it ended with exit status 1: not signed in"},
		{shell("echo t0p-secret; echo got t0p-secret >&2; exit 1"), "exit status 1: got ***"},
		{shell("kill -9 $$"), "it ended with signal: killed"},
		{shell("true"), "the first line of its output is empty"},
		{shell("echo; echo two"), "the first line of its output is empty"},
		{shell("head -c 100000 /dev/zero | tr '\\0' x"), "is longer than 64 KiB"},
	} {
		got, err := Output(t.Context(), c.words, nil)
		if got != "" || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %q, %v; want %q", c.words, got, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "t0p-secret") {
			t.Errorf("%q: the error contains the output: %v", c.words, err)
		}
	}
}

func TestOutputEnvironment(t *testing.T) {
	t.Setenv("SECRETCMD_SET", "from the environment")
	got, err := Output(t.Context(), shell(`echo "$SECRETCMD_SET, $SECRETCMD_FILE, ${HOME:+home}"`),
		map[string]string{"SECRETCMD_SET": "from the file", "SECRETCMD_FILE": "from the file"})
	if want := "from the environment, from the file, home"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A program that hangs is killed together with its process group.
func TestOutputKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Output(ctx, shell("sleep 60 & echo $! >"+file+"; wait"), nil)
		done <- err
	}()
	pid := proctest.PIDFrom(t, file)
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Error(err)
	}
	proctest.Eventually(t, "the end of the group", func() bool { return !alive(pid) })
}

// What a program leaves behind in its group is killed, and does not delay the result although it
// holds stdout open.
func TestOutputKillsTheRestOfTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	got, err := Output(t.Context(), shell("sleep 60 & echo $! >"+file+"; echo one"), nil)
	if got != "one" || err != nil || time.Since(start) > Timeout/2 {
		t.Errorf("%q, %v after %s", got, err, time.Since(start))
	}
	pid := proctest.PIDFrom(t, file)
	proctest.Eventually(t, "the end of the group", func() bool { return !alive(pid) })
}

// An agent that the program starts in a session of its own stays.
func TestOutputKeepsAgents(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs setsid")
	}
	file := filepath.Join(t.TempDir(), "pid")
	script := proctest.Detached(file, proctest.Sleep) +
		"until [ -s " + file + " ]; do sleep 0.01; done; echo one"
	got, err := Output(t.Context(), shell(script), nil)
	if got != "one" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	pid := proctest.PIDFrom(t, file)
	if !alive(pid) {
		t.Error("the agent was killed")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestOutputTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	start := time.Now()
	_, err := Output(t.Context(), []string{"sleep", "60"}, nil)
	if err == nil || !strings.Contains(err.Error(), "it did not end within 10s and was killed") ||
		time.Since(start) > 2*Timeout {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

func alive(pid int) bool {
	if runtime.GOOS == "linux" {
		return proctest.Running(pid)
	}
	_, err := os.FindProcess(pid)
	return err == nil && proctest.Exists(pid)
}
