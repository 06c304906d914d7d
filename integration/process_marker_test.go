//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// markerEnv is in the environment of all processes that one test starts: of the gateway, and
// through the configuration of its backends and their children. Unlike parents, groups and
// sessions, the environment is inherited by every descendant.
const markerEnv = "INTEGRATION_MARK"

// An envMarker identifies the processes of one test.
type envMarker string

type process struct {
	pid  int
	args string
}

func (p process) String() string { return fmt.Sprintf("%d: %s", p.pid, p.args) }

// processes returns the running processes with the marker. Only Linux shows their environment;
// elsewhere the result is empty.
func (m envMarker) processes() []process {
	if runtime.GOOS != "linux" {
		return nil
	}
	entry := []byte(markerEnv + "=" + string(m))
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var found []process
	for _, dir := range dirs {
		// Empty for zombies, not readable for other users' processes.
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil ||
			!slices.ContainsFunc(bytes.Split(env, []byte{0}),
				func(v []byte) bool { return bytes.Equal(v, entry) }) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, process{pid,
			strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")})
	}
	return found
}

// requireNoProcesses fails the test for each process that still has the marker after this time,
// and kills these processes.
func (m envMarker) requireNoProcesses(t testing.TB, within time.Duration) {
	t.Helper()
	var left []process
	if poll(within, func() bool { left = m.processes(); return len(left) == 0 }) {
		return
	}
	for _, p := range left {
		t.Errorf("left running: %v", p)
		if proc, err := os.FindProcess(p.pid); err == nil {
			proc.Kill()
		}
	}
}

// poll calls condition until it returns true or the time is over.
func poll(within time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(within)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(wait)
	}
}
