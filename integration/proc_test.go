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

// markEnv stands in the environment of everything that one test starts: of the gateway, and by way of the config of
// its backends and their children. Unlike parents, groups and sessions it survives whatever those processes do.
const markEnv = "INTEGRATION_MARK"

// A mark names the processes of one test.
type mark string

type process struct {
	pid  int
	args string
}

func (p process) String() string { return fmt.Sprintf("%d: %s", p.pid, p.args) }

// processes are those alive that carry m. Only Linux shows their environment; elsewhere there seem to be none.
func (m mark) processes() []process {
	if runtime.GOOS != "linux" {
		return nil
	}
	entry := []byte(markEnv + "=" + string(m))
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var found []process
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ")) // empty for zombies, forbidden for strangers
		if err != nil || !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return bytes.Equal(v, entry) }) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, process{pid, strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")})
	}
	return found
}

// mustBeGone fails the test for each process that still carries m when the time is over, and ends those.
func (m mark) mustBeGone(t testing.TB, within time.Duration) {
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

// poll asks until the answer is yes or the time is over.
func poll(within time.Duration, ask func() bool) bool {
	deadline := time.Now().Add(within)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if ask() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(wait)
	}
}
