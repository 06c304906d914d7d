package child

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/proctest"
	"mcpgateway/internal/procgroup"
)

// PROC-01: an orphan in a session of its own ends with its child, before Close returns.
func TestPROC01OrphansEndWithTheChild(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	if !proctest.InSubreaper(t, procgroup.BecomeSubreaper) {
		return
	}
	for name, end := range map[string]func(*Process){
		"Close": func(p *Process) { p.Close() },
		"death": func(p *Process) { _ = syscall.Kill(p.Pid(), syscall.SIGKILL) },
	} {
		for what, does := range map[string]string{
			"sleeps":          proctest.Sleep,
			"ignores SIGTERM": proctest.IgnoreSignals,
			"has a child without its environment": "env -i sh -c 'echo $$ > " + t.TempDir() +
				"/deep; " + proctest.IgnoreSignals + "' & wait",
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "pid")
				p := spawn(t, shell(proctest.Detached(file, does)+"read -r never"))
				pid := proctest.PIDFrom(t, file)
				all := []int{pid}
				if _, deep, ok := strings.Cut(does, "> "); ok {
					deep, _, _ = strings.Cut(deep, ";")
					all = append(all, proctest.PIDFrom(t, deep))
				}
				end(p)
				for _, pid := range all {
					if name == "Close" && proctest.Running(pid) {
						t.Errorf("%d runs after Close", pid)
					}
					proctest.Eventually(t, "its end", func() bool { return !proctest.Exists(pid) })
				}
			})
		}
	}
}

// An orphan gets SIGTERM before SIGKILL.
func TestOrphansGetSIGTERMFirst(t *testing.T) {
	if !proctest.InSubreaper(t, procgroup.BecomeSubreaper) {
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "signals")
	c := shell(proctest.Detached(dir+"/pid",
		"trap 'echo bye > "+file+"; exit' TERM; echo $$ > "+dir+"/trapped; "+
			"while :; do sleep 0.01; done") + "read -r never")
	c.Grace = 5 * time.Second
	p := spawn(t, c)
	proctest.PIDFrom(t, dir+"/trapped")
	p.Close()
	if text, _ := os.ReadFile(file); string(text) != "bye\n" {
		t.Errorf("the orphan wrote %q", text)
	}
}

// The orphans of a child that has ended are killed; the orphans of other children are not killed.
func TestOrphansOfAnotherChildAreNotKilled(t *testing.T) {
	if !proctest.InSubreaper(t, procgroup.BecomeSubreaper) {
		return
	}
	dir := t.TempDir()
	a := spawn(t, shell(proctest.Detached(dir+"/a", proctest.Sleep)+"read -r never"))
	b := spawn(t,
		shell(proctest.Detached(dir+"/b",
			proctest.Sleep)+"setsid sleep 60 & echo $! > "+dir+"/c; read -r never"))
	ofA, ofB, stillB := proctest.PIDFrom(t, dir+"/a"), proctest.PIDFrom(t,
		dir+"/b"), proctest.PIDFrom(t, dir+"/c")
	a.Close()
	if proctest.Running(ofA) {
		t.Error("the orphan of the ended child runs")
	}
	if !proctest.Running(ofB) || !proctest.Running(stillB) || b.leader.waitExit(0) {
		t.Error("the other child was killed")
	}
	b.Close()
	if proctest.Running(ofB) || proctest.Running(stillB) {
		t.Error("the orphan of the other child runs")
	}
}

// The error of a server that turns itself into a daemon reports that this is not allowed.
func TestExitErrorMentionsAnOrphan(t *testing.T) {
	if !proctest.InSubreaper(t, procgroup.BecomeSubreaper) {
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	// the child must not end before its orphan has written the file
	daemon := proctest.Detached(file, proctest.Sleep) + "until [ -s " + file +
		" ]; do sleep 0.01; done; "
	for script, want := range map[string]string{
		daemon +
			"exit 0": "exit 0; it has left a process behind, but a server must not go into the background",
		daemon + "exit 3": "exit 3",
		"exit 0":          "exit 0",
	} {
		_ = os.Remove(file)
		p := spawn(t, shell(script))
		if _, _, err := p.Read(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v", script, err)
		}
	}
}

// PROC-04: when the parent is killed, processes that have left the group of its child are killed.
func TestPROC04TheWatchdogKillsOrphans(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	victim := proctest.StartSubprocess(t)
	if victim == nil {
		procgroup.BecomeSubreaper()
		spawn(t,
			shell(proctest.Detached(os.Getenv("DIR")+"/pid",
				proctest.IgnoreSignals)+"read -r never"))
		select {}
	}
	pid := victim.PIDFrom(t, "pid")
	if !proctest.Exists(pid) {
		t.Fatal("the process does not run")
	}
	victim.Kill()
	proctest.Eventually(t, "its end", func() bool { return !proctest.Exists(pid) })
}

// PROC-04: when the parent is killed, the orphans of an ended child are also killed, even during
// Grace.
func TestPROC04OrphansAreGuardedDuringTheirGrace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	victim := proctest.StartSubprocess(t)
	if victim == nil {
		procgroup.BecomeSubreaper()
		dir := os.Getenv("DIR")
		c := shell(proctest.Detached(dir+"/pid",
			"trap 'echo $$ > "+dir+"/signalled' TERM; while :; do sleep 0.01; done") +
			"until [ -s " +
			dir + "/pid ]; do sleep 0.01; done")
		c.Grace = time.Hour
		spawn(t, c)
		select {}
	}
	pid := victim.PIDFrom(t, "signalled")
	victim.Kill()
	proctest.Eventually(t, "its end", func() bool { return !proctest.Exists(pid) })
}
