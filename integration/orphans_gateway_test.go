//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withPrelude makes a backend run a shell script before its command. The configuration turns $$
// into $.
func withPrelude(b backend, script string) backend {
	b.Args = []string{"-c", script + `exec "$0"`, b.Command}
	b.Command = "sh"
	return b
}

// Each of these scripts leaves a process behind that does not end by itself.
const (
	orphanInGroup      = `sh -c 'trap "" TERM INT HUP; while :; do sleep 0.1; done' <&- >&- 2>&- & `
	orphanDoubleForked = `(sh -c 'sleep 1000 & exec sleep 1000' <&- >&- 2>&- &); `
	orphanInSession    = `(setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 0.1; done' <&- >&- 2>&- &); `
	orphanHoldingPipes = `(setsid sleep 1000 &); `
)

// orphaningBackend returns a backend that leaves one of each behind.
func orphaningBackend(name, notes string) backend {
	return withPrelude(helperBackend(name, "mirror", notes),
		orphanInGroup+orphanDoubleForked+orphanInSession+orphanHoldingPipes)
}

// awaitOrphans waits until more than six processes are running for each of n orphaningBackends.
func (s *setup) awaitOrphans(n int) {
	s.t.Helper()
	if !poll(waitTimeout, func() bool { return len(s.marker.processes()) > 6*n }) {
		s.t.Fatalf("only these are running: %v", s.marker.processes())
	}
}

// PROC-01, PROC-04: however the gateway ends, all processes that its backends have started end
// with it.
func TestPROC04_NoProcessesLeftAfterExit(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rawClient){
		"end of file": func(gw *rawClient) { gw.stdin.Close() },
		"SIGTERM":     func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGINT":      func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGINT) },
		"SIGKILL":     func(gw *rawClient) { gw.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, nil, orphaningBackend("one", ""), orphaningBackend("two", ""))
			gw := s.start()
			gw.initialize("2025-11-25")
			listTools(t, gw)
			s.awaitOrphans(2)
			end(gw)
			code := gw.exitCode(20 * time.Second)
			if name == "SIGKILL" {
				s.marker.requireNoProcesses(t, 3*time.Second)
				return
			}
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			if left := s.marker.processes(); len(left) > 0 {
				t.Errorf("left when the gateway exited: %v", left)
			}
		})
	}
}

// PROC-01: processes left behind by a backend are killed when the backend dies, not only when
// the gateway ends, and processes of other backends are not affected.
func TestPROC01_OrphansOfDeadBackendAreKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	withOrphan := func(name string) backend {
		return withPrelude(helperBackend(name, "mirror", ""),
			`(setsid sh -c 'echo $$$$ >> `+dir+"/"+name+`; exec sleep 1000' <&- >&- 2>&- &); `)
	}
	s := newSetup(t, nil, withOrphan("one"), withOrphan("two"))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	of := func(name string, n int) int {
		var pid int
		if !poll(waitTimeout, func() bool {
			lines := readNotes(dir + "/" + name)
			if len(lines) > n {
				pid, _ = strconv.Atoi(lines[n])
			}
			return pid > 0
		}) {
			t.Fatalf("%s has no orphan", name)
		}
		return pid
	}
	one, two := of("one", 0), of("two", 0)
	callTool(gw, "one__die", `{}`)
	if !poll(waitTimeout, func() bool { return syscall.Kill(one, 0) != nil }) {
		t.Errorf("the orphan of the dead backend is still running")
	}
	of("one", 1) // the dead backend was restarted
	if syscall.Kill(two, 0) != nil {
		t.Error("the orphan of the other backend was killed")
	}
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := s.marker.processes(); len(left) > 0 {
		t.Errorf("left when the gateway exited: %v", left)
	}
}

// PROC-04: no process is left if the gateway is killed while it starts, serves or shuts down.
func TestPROC04_KilledAtRandomTime(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 12 {
		s := newSetup(t, nil, orphaningBackend("one", ""), orphaningBackend("two", ""),
			helperBackend("three", "stubborn", ""))
		gw := s.start()
		moment := time.Duration(random.IntN(300)) * time.Millisecond
		if random.IntN(2) == 0 {
			gw.sendRequest("1", "initialize", initializeParams("2025-11-25"))
			<-time.After(moment)
		} else {
			gw.initialize("2025-11-25")
			listTools(t, gw)
			gw.cmd.Process.Signal(syscall.SIGTERM)
			<-time.After(5 * moment)
		}
		gw.cmd.Process.Kill()
		gw.exitCode(waitTimeout)
		s.marker.requireNoProcesses(t, 5*time.Second)
	}
}

// startAsInit runs the gateway as process 1 of a PID namespace, as in a container. It returns
// the process of unshare, and the gateway's pid outside of the namespace.
func (s *setup) startAsInit(args ...string) (*rawClient, int) {
	s.t.Helper()
	cmd := exec.Command("unshare", append([]string{"--user", "--map-root-user", "--pid", "--fork",
		"--mount-proc", gateway(s.t), "-c", s.config}, args...)...)
	cmd.Env, cmd.Dir = s.env(), s.dir
	c := startRaw(s.t, cmd)
	var pid int
	if !poll(waitTimeout, func() bool {
		select {
		case <-c.exited:
			s.t.Fatalf("this test needs unshare, and permission to use it: %s", c.logs())
		default:
		}
		for _, p := range s.marker.processes() {
			if parentOf(p.pid) == cmd.Process.Pid && strings.HasPrefix(p.args, gateway(s.t)) {
				pid = p.pid
			}
		}
		return pid != 0
	}) {
		s.t.Fatal("the gateway does not start")
	}
	return c, pid
}

// stat returns the state and the parent of a process, "" and 0 if it does not exist.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func parentOf(pid int) int {
	_, parent := stat(pid)
	return parent
}

// countZombies counts the dead children of a process that it has not reaped.
func countZombies(of int) (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if state, parent := stat(pid); state == "Z" && parent == of {
			n++
		}
	}
	return n
}

// As process 1 the gateway reaps the orphans of its backends, and signals shut it down in order.
func TestInitProcess_ReapsAndShutsDown(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			orphans := filepath.Join(t.TempDir(), "orphans")
			const n = 20
			forks := `i=0; while [ $i -lt 20 ]; do (sh -c 'sleep 0.1; echo x >> ` + orphans +
				`' & ); i=$((i+1)); done; `
			s := newSetup(t, nil, withPrelude(helperBackend("one", "mirror", ""), forks),
				orphaningBackend("two", ""))
			gw, pid := s.startAsInit()
			gw.initialize("2025-11-25")
			listTools(t, gw)
			if !poll(waitTimeout, func() bool { return len(readNotes(orphans)) == n }) {
				t.Errorf("%d orphans have run", len(readNotes(orphans)))
			}
			if !poll(waitTimeout, func() bool { return countZombies(pid) == 0 }) {
				t.Errorf("%d zombies", countZombies(pid))
			}
			if m := callTool(gw, "one__die", `{}`); m.code() != -32603 ||
				!strings.Contains(string(m.Error), "killed") {
				t.Errorf("the reason of the death is missing: %s", m.Raw)
			}
			began := time.Now()
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			if code := gw.exitCode(10 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			t.Logf("exited after %v", time.Since(began).Round(time.Millisecond))
			if left := s.marker.processes(); len(left) > 0 {
				t.Errorf("left in the namespace: %v", left)
			}
			gw.checkPure()
		})
	}
}
