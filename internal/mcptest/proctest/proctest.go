//go:build unix

// Package proctest contains helpers for tests of processes: waiting for another process, and
// shell scripts for processes that detach themselves or ignore signals.
package proctest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Eventually waits until ok returns true, and fails the test after 10 s.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("did not happen within 10 s: " + what)
		case <-tick.C:
		}
	}
}

// Exists reports whether a process exists, possibly as a zombie.
func Exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// Running reports whether a process exists and is not a zombie. It works on Linux only.
func Running(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	afterName := bytes.TrimSpace(text[bytes.LastIndexByte(text, ')')+1:])
	return len(afterName) > 0 && afterName[0] != 'Z' && afterName[0] != 'X'
}

// PIDFrom waits until file contains a process id and a newline.
func PIDFrom(t *testing.T, file string) (pid int) {
	t.Helper()
	Eventually(t, "a process id in "+filepath.Base(file), func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0 && bytes.HasSuffix(text, []byte("\n"))
	})
	return pid
}

// Scripts for [Detached].
const (
	IgnoreSignals = "trap \"\" TERM HUP INT; while :; do sleep 0.05; done"
	Sleep         = "exec sleep 60"
)

// Detached returns shell code that starts a process in a session of its own, whose parent has
// exited. The process writes its id to file ($FILE in the script) and then runs script.
func Detached(file, script string) string {
	return fmt.Sprintf("(FILE=%s setsid sh -c 'echo $$ > $FILE; %s' <&- >&- 2>&- &); ",
		file, strings.ReplaceAll(script, "'", `'\''`))
}

// InSubreaper runs the calling test again in a new process. In the new process it calls become and
// returns true. In the first process it returns false when the new process has ended.
func InSubreaper(t *testing.T, become func() (stop func())) bool {
	t.Helper()
	const env = "TEST_IN_SUBREAPER"
	if os.Getenv(env) == t.Name() {
		t.Cleanup(become())
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("in a subreaper process: %v\n%s", err, out)
	}
	return false
}

// A Subprocess is a second process of the same test, which the test can kill.
type Subprocess struct {
	cmd *exec.Cmd
	dir string
}

// StartSubprocess runs the calling test again in a new process. In the new process it returns nil,
// and the environment variable DIR contains the path of a directory that both processes use.
func StartSubprocess(t *testing.T) *Subprocess {
	t.Helper()
	const env = "TEST_VICTIM"
	if os.Getenv(env) == t.Name() {
		return nil
	}
	s := &Subprocess{exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$"), t.TempDir()}
	s.cmd.Env = append(os.Environ(), env+"="+t.Name(), "DIR="+s.dir)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill(); _ = s.cmd.Wait() })
	return s
}

// PIDFrom waits for a process id in a file of the shared directory.
func (s *Subprocess) PIDFrom(t *testing.T, name string) int {
	t.Helper()
	return PIDFrom(t, filepath.Join(s.dir, name))
}

// Kill sends SIGKILL.
func (s *Subprocess) Kill() { _ = s.cmd.Process.Kill() }
