package procgroup

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/proctest"
)

// A shell is a shell script in a Group. It runs until its stdin is closed.
type shell struct {
	cmd   *exec.Cmd
	group *Group
	stdin io.Closer
	once  sync.Once
}

// startShell starts a script, and then "read -r never".
func startShell(t *testing.T, script string) *shell {
	t.Helper()
	s := &shell{cmd: exec.Command("/bin/sh", "-c", script+"read -r never")}
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err == nil {
		s.group, err = Start(s.cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

func (s *shell) end() {
	s.once.Do(func() {
		s.stdin.Close()
		s.group.Wait(s.cmd)
		s.group.KillOrphans(time.Second)
	})
}

// PROC-04: the watchdog is the leader of the group before the process runs, and kills the group
// when its pipe is closed.
func TestPROC04TheWatchdogKillsItsGroupWhenThePipeCloses(t *testing.T) {
	cmd := exec.Command("sleep", "30")
	g, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if g.watchdog == nil || g.pgid != g.watchdog.Process.Pid {
		t.Error("the watchdog does not lead the group")
	}
	if pgid, err := syscall.Getpgid(cmd.Process.Pid); err != nil || pgid != g.pgid {
		t.Errorf("the process is in group %d, not %d (%v)", pgid, g.pgid, err)
	}
	watchdog := g.watchdog
	g.watchdogPipe.Close()
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v", status.Signal())
	}
	g.release()
	status := watchdog.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signal() != syscall.SIGKILL {
		t.Errorf("the watchdog ended with %v", status.Signal())
	}
}

// A gateway that is started by another gateway appends its marker to the marker it inherited.
func TestMarkersOfNestedGatewaysAreJoined(t *testing.T) {
	t.Setenv(markerVariable, "outer")
	cmd := exec.Command("/bin/sh", "-c", `printf %s "$`+markerVariable+`"`)
	var out strings.Builder
	cmd.Stdout = &out
	g, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	g.Wait(cmd)
	g.KillOrphans(0)
	if got, want := out.String(), "outer,"+g.envMarker; got != want {
		t.Errorf("the marker is %q, want %q", got, want)
	}
}

// A process without the marker is not killed: removing the marker means that the process should
// stay.
func TestAProcessWithoutTheMarkerIsNotKilled(t *testing.T) {
	if !proctest.InSubreaper(t, BecomeSubreaper) {
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	s := startShell(t, "unset "+markerVariable+"; "+proctest.Detached(file, proctest.Sleep))
	pid := proctest.PIDFrom(t, file)
	s.end()
	if !proctest.Running(pid) {
		t.Error("the process was killed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	proctest.Eventually(t, "the process is reaped", func() bool { return !proctest.Exists(pid) })
}

// Every zombie is reaped, and the reaper takes no exit status from Group.Wait.
func TestZombiesAreReapedAndExitStatusesAreKept(t *testing.T) {
	if !proctest.InSubreaper(t, BecomeSubreaper) {
		return
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				cmd := exec.Command("/bin/sh", "-c", "(true & true &); (true & exit 3); exit 7")
				g, err := Start(cmd)
				if err != nil {
					t.Error(err)
					return
				}
				g.Wait(cmd)
				if code := cmd.ProcessState.ExitCode(); code != 7 {
					t.Errorf("exit code %d", code)
				}
				g.KillOrphans(time.Second)
			}
		})
	}
	all.Wait()
	proctest.Eventually(t, "all zombies are reaped", func() bool {
		for _, p := range processes() {
			if p.parent == os.Getpid() {
				return false
			}
		}
		return true
	})
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if len(registry.started) != 0 || registry.starting != 0 {
		t.Errorf("%d children are registered, and %d are starting", len(registry.started),
			registry.starting)
	}
}

// The first zombie that the reaper finds may be a registered child that was not waited for, such as
// a watchdog that a user has killed. Later zombies are still reaped.
func TestZombiesAfterARegisteredChildAreReaped(t *testing.T) {
	if !proctest.InSubreaper(t, BecomeSubreaper) {
		return
	}
	runtime.LockOSThread() // the reaper finds children of this thread first
	defer runtime.UnlockOSThread()
	addStarting := func(n int) {
		registry.mu.Lock()
		defer registry.mu.Unlock()
		registry.starting += n
	}
	addStarting(1) // so that the reaper does nothing
	first := startShell(t, "")
	watchdog := first.group.watchdog.Process
	_ = watchdog.Kill()
	file := filepath.Join(t.TempDir(), "pid")
	second := startShell(t, proctest.Detached(file, "exit"))
	pid := proctest.PIDFrom(t, file)
	proctest.Eventually(t, "both end",
		func() bool { return !proctest.Running(watchdog.Pid) && !proctest.Running(pid) })
	addStarting(-1)
	registry.reap()
	if proctest.Exists(pid) {
		t.Error("the zombie was not reaped")
	}
	second.end()
	first.end()
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if len(registry.started) != 0 {
		t.Error("a registered child was reaped before it was waited for")
	}
}

// PROC-04: a watchdog exists at every moment between the end of a process and the search for its
// orphans. Without it, half of the gateways that were killed while their backends crashed left an
// orphan.
func TestPROC04OrphansAreGuardedFromTheEndOfTheProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	victim := proctest.StartSubprocess(t)
	if victim == nil {
		BecomeSubreaper()
		dir := os.Getenv("DIR")
		cmd := exec.Command("/bin/sh", "-c",
			proctest.Detached(dir+"/pid",
				proctest.IgnoreSignals)+"until [ -s "+dir+"/pid ]; do sleep 0.01; done")
		g, err := Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		g.Wait(cmd)
		if err := os.WriteFile(dir+"/waited", []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	pid := victim.PIDFrom(t, "pid")
	victim.PIDFrom(t, "waited")
	if !proctest.Exists(pid) {
		t.Fatal("the orphan does not run")
	}
	victim.Kill()
	proctest.Eventually(t, "the orphan ends", func() bool { return !proctest.Exists(pid) })
}
