package transport

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// adopting runs the test that calls it once more, in a process of its own that adopts:
// there it returns true, and here false, when that is over.
func adopting(t *testing.T) bool {
	t.Helper()
	const env = "ADOPTING"
	if os.Getenv(env) == t.Name() {
		t.Cleanup(Adopt())
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("in a process that adopts: %v\n%s", err, out)
	}
	return false
}

// pidIn waits for a file with a pid.
func pidIn(t *testing.T, file string) (pid int) {
	t.Helper()
	eventually(t, "a pid in "+filepath.Base(file), func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0 && bytes.HasSuffix(text, []byte("\n"))
	})
	return pid
}

// leaves is a line of shell that starts a process in a session of its own, whose parent is
// gone; it writes its pid to $FILE, and then does what it is told to.
func leaves(file, does string) string {
	return fmt.Sprintf("(FILE=%s setsid sh -c 'echo $$ > $FILE; %s' <&- >&- 2>&- &); ", file, strings.ReplaceAll(does, "'", `'\''`))
}

const (
	lingers = "trap \"\" TERM HUP INT; while :; do sleep 0.05; done"
	sleeps  = "exec sleep 60"
)

// PROC-01: what a child leaves behind in a session of its own ends with it, and
// when Close returns it has.
func TestPROC01WhatHasLeftTheGroupEndsWithTheChild(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	if !adopting(t) {
		return
	}
	for name, end := range map[string]func(*Child){
		"Close": func(p *Child) { p.Close() },
		"death": func(p *Child) { _ = syscall.Kill(p.Pid(), syscall.SIGKILL) },
	} {
		for what, does := range map[string]string{
			"sleeps":                              sleeps,
			"ignores SIGTERM":                     lingers,
			"has a child without its environment": "env -i sh -c 'echo $$ > " + t.TempDir() + "/deep; " + lingers + "' & wait",
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "pid")
				p := spawn(t, shell(leaves(file, does)+"read -r never"))
				pid := pidIn(t, file)
				all := []int{pid}
				if _, deep, ok := strings.Cut(does, "> "); ok {
					deep, _, _ = strings.Cut(deep, ";")
					all = append(all, pidIn(t, deep))
				}
				end(p)
				for _, pid := range all {
					if name == "Close" && alive(pid) && !dead(pid) {
						t.Errorf("%d is there after Close", pid)
					}
					eventually(t, "its end", func() bool { return !alive(pid) })
				}
			})
		}
	}
}

// dead reports whether a process is a zombie.
func dead(pid int) bool {
	p, ok := look(pid)
	return !ok || p.dead
}

// What a child leaves behind is asked to end before it is made to.
func TestWhatIsLeftBehindIsEndedPolitely(t *testing.T) {
	if !adopting(t) {
		return
	}
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	c := shell(leaves(dir+"/pid", "trap 'echo bye > "+said+"; exit' TERM; while :; do sleep 0.01; done") + "read -r never")
	c.Grace = 5 * time.Second
	p := spawn(t, c)
	pidIn(t, dir+"/pid")
	p.Close()
	if text, _ := os.ReadFile(said); string(text) != "bye\n" {
		t.Errorf("it said %q", text)
	}
}

// Whom a child leaves behind while another lives is told from what that one has left.
func TestTheStraysOfASiblingAreLeftAlone(t *testing.T) {
	if !adopting(t) {
		return
	}
	dir := t.TempDir()
	a := spawn(t, shell(leaves(dir+"/a", sleeps)+"read -r never"))
	b := spawn(t, shell(leaves(dir+"/b", sleeps)+"setsid sleep 60 & echo $! > "+dir+"/c; read -r never"))
	ofA, ofB, stillB := pidIn(t, dir+"/a"), pidIn(t, dir+"/b"), pidIn(t, dir+"/c")
	a.Close()
	if alive(ofA) && !dead(ofA) {
		t.Error("what the ended one left is there")
	}
	if dead(ofB) || dead(stillB) || b.gone(0) {
		t.Error("the sibling was hit")
	}
	b.Close()
	if !dead(ofB) || !dead(stillB) {
		t.Error("what the other one left is there")
	}
}

// Who takes the mark out of the environment of what it starts means it to stay.
func TestWithoutItsMarkAProcessMayStay(t *testing.T) {
	if !adopting(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	p := spawn(t, shell("unset "+markEnv+"; "+leaves(file, sleeps)+"read -r never"))
	pid := pidIn(t, file)
	p.Close()
	if dead(pid) {
		t.Error("it has ended")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "its end", func() bool { return !alive(pid) }) // it is reaped all the same
}

// A server that makes a daemon of itself is told not to.
func TestADaemonIsToldToStayInTheForeground(t *testing.T) {
	if !adopting(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	daemon := leaves(file, sleeps) + "until [ -s " + file + " ]; do sleep 0.01; done; " // its end must not overtake it
	for script, want := range map[string]string{
		daemon + "exit 0": "exit 0; it has left a process behind, but a server must not go into the background",
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

// A gateway beneath this one marks its children for both.
func TestTheMarksOfGatewaysAddUp(t *testing.T) {
	t.Setenv(markEnv, "outer")
	p := spawn(t, shell(`printf '{"jsonrpc":"2.0","method":"%s"}\n' "$`+markEnv+`"; read -r never`))
	m, _, err := p.Read()
	if above, own, ok := strings.Cut(m.Method(), ","); err != nil || above != "outer" || !ok || own != p.group.mark {
		t.Errorf("the mark is %q, %v", m.Method(), err)
	}
}

// No zombie stays, whoever's it was; and the end of each child is told to who waits for it.
func TestTheDeadAreReapedAndOursAreNotStolen(t *testing.T) {
	if !adopting(t) {
		return
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				p, err := Spawn(shell("(true & true &); (true & exit 3); exit 7"))
				if err != nil {
					t.Error(err)
					return
				}
				if _, _, err := p.Read(); err == nil || err.Error() != "exit 7" {
					t.Errorf("got %v", err)
				}
				p.Close()
			}
		})
	}
	all.Wait()
	eventually(t, "an end of the dead", func() bool {
		for _, p := range processes() {
			if p.parent == os.Getpid() {
				return false
			}
		}
		return true
	})
	kin.mu.Lock()
	defer kin.mu.Unlock()
	if len(kin.ours) != 0 || kin.starting != 0 {
		t.Errorf("the family has %d members and %d to come", len(kin.ours), kin.starting)
	}
}

// parent starts the test that calls it once more, to be killed: there it returns nil, here
// the running process.
func parent(t *testing.T) *exec.Cmd {
	t.Helper()
	const env = "BE_KILLED"
	if os.Getenv(env) == t.Name() {
		return nil
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"="+t.Name(), "DIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func dirOf(cmd *exec.Cmd) string {
	_, dir, _ := strings.Cut(cmd.Env[len(cmd.Env)-1], "=")
	return dir
}

// PROC-04: with a parent that is killed goes also what has left the group of its child.
func TestPROC04TheHolderFindsWhatHasLeftTheGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	cmd := parent(t)
	if cmd == nil {
		Adopt()
		spawn(t, shell(leaves(os.Getenv("DIR")+"/pid", lingers)+"read -r never"))
		select {}
	}
	pid := pidIn(t, dirOf(cmd)+"/pid")
	if !alive(pid) {
		t.Fatal("it does not live")
	}
	_ = cmd.Process.Kill()
	eventually(t, "its end", func() bool { return !alive(pid) })
}

// PROC-04: so does what was left behind by a child that is dead, while it is given its grace.
func TestPROC04StraysAreHeldWhileTheyHaveTheirGrace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	cmd := parent(t)
	if cmd == nil {
		Adopt()
		dir := os.Getenv("DIR")
		c := shell(leaves(dir+"/pid", "trap 'echo $$ > "+dir+"/asked' TERM; while :; do sleep 0.01; done") + "until [ -s " + dir + "/pid ]; do sleep 0.01; done")
		c.Grace = time.Hour
		spawn(t, c)
		select {}
	}
	pid := pidIn(t, dirOf(cmd)+"/asked")
	_ = cmd.Process.Kill()
	eventually(t, "its end", func() bool { return !alive(pid) })
}

// A child of ours that is dead and not waited for yet, such as a holder that somebody has killed,
// may be met first by who looks for the dead. What is behind it is reaped all the same.
func TestTheDeadBehindOneOfOursAreReaped(t *testing.T) {
	if !adopting(t) {
		return
	}
	runtime.LockOSThread() // whose own children are met first
	defer runtime.UnlockOSThread()
	starts := func(by int) {
		kin.mu.Lock()
		defer kin.mu.Unlock()
		kin.starting += by
	}
	starts(1) // so that nobody else reaps
	p := spawn(t, shell("read -r never"))
	holder := p.group.holder.Process
	_ = holder.Kill()
	file := filepath.Join(t.TempDir(), "pid")
	q := spawn(t, shell(leaves(file, "exit")+"read -r never"))
	pid := pidIn(t, file)
	eventually(t, "both deaths", func() bool { return dead(holder.Pid) && dead(pid) })
	starts(-1)
	kin.reap()
	if alive(pid) {
		t.Error("it was not reaped")
	}
	q.Close()
	p.Close()
	kin.mu.Lock()
	defer kin.mu.Unlock()
	if len(kin.ours) != 0 {
		t.Error("one of ours was")
	}
}

// PROC-04: there is no moment between the end of a child's group and the search for what it has left
// in which nobody holds that. Of gateways that were killed while their backends crashed, and left
// daemons, every other left one.
func TestPROC04StraysAreHeldFromTheEndOfTheChild(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	cmd := parent(t)
	if cmd == nil {
		Adopt()
		dir := os.Getenv("DIR")
		child := exec.Command("/bin/sh", "-c", leaves(dir+"/pid", lingers)+"until [ -s "+dir+"/pid ]; do sleep 0.01; done")
		g, err := startGroup(child)
		if err != nil {
			t.Fatal(err)
		}
		g.wait(child)
		if err := os.WriteFile(dir+"/waited", []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	pid := pidIn(t, dirOf(cmd)+"/pid")
	pidIn(t, dirOf(cmd)+"/waited")
	if !alive(pid) {
		t.Fatal("it does not live")
	}
	_ = cmd.Process.Kill()
	eventually(t, "its end", func() bool { return !alive(pid) })
}
