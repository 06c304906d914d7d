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

// leaving is a backend that runs a shell script before it plays its part. The config makes $$ a $.
func leaving(b backend, script string) backend {
	b.Args = []string{"-c", script + `exec "$0"`, b.Command}
	b.Command = "sh"
	return b
}

// Each of these leaves a process behind that does not end by itself, with $NOTE as a function that notes a line.
const (
	inTheGroup  = `sh -c 'trap "" TERM INT HUP; while :; do sleep 0.1; done' <&- >&- 2>&- & `
	forkedTwice = `(sh -c 'sleep 1000 & exec sleep 1000' <&- >&- 2>&- &); `
	inASession  = `(setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 0.1; done' <&- >&- 2>&- &); `
	holdsPipes  = `(setsid sleep 1000 &); `
)

// litter is a backend that leaves behind one of each.
func litter(name, notes string) backend {
	return leaving(actor(name, "mirror", notes), inTheGroup+forkedTwice+inASession+holdsPipes)
}

// littered waits until all that n litters start is there: nine processes each, at least.
func (s *setup) littered(n int) {
	s.t.Helper()
	if !poll(patience, func() bool { return len(s.mark.processes()) > 6*n }) {
		s.t.Fatalf("only these run: %v", s.mark.processes())
	}
}

// PROC-01, PROC-04: whatever ends the gateway, what its backends have started ends with it.
func TestPROC04NothingIsLeftWhateverEndsTheGateway(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rawClient){
		"end of file": func(gw *rawClient) { gw.stdin.Close() },
		"SIGTERM":     func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGINT":      func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGINT) },
		"SIGKILL":     func(gw *rawClient) { gw.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, nil, litter("one", ""), litter("two", ""))
			gw := s.start()
			gw.greet("2025-11-25")
			listTools(t, gw)
			s.littered(2)
			end(gw)
			code := gw.exitCode(20 * time.Second)
			if name == "SIGKILL" {
				s.mark.mustBeGone(t, 3*time.Second)
				return
			}
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			if left := s.mark.processes(); len(left) > 0 {
				t.Errorf("left when the gateway exited: %v", left)
			}
		})
	}
}

// PROC-01: what a backend has left behind goes with it and not with the gateway, and what another one has, stays.
func TestPROC01WhatADeadBackendHasLeftIsEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stray := func(name string) backend {
		return leaving(actor(name, "mirror", ""), `(setsid sh -c 'echo $$$$ >> `+dir+"/"+name+`; exec sleep 1000' <&- >&- 2>&- &); `)
	}
	s := newSetup(t, nil, stray("one"), stray("two"))
	gw := s.start()
	gw.greet("2025-11-25")
	listTools(t, gw)
	of := func(name string, n int) int {
		var pid int
		if !poll(patience, func() bool {
			lines := notesOf(dir + "/" + name)
			if len(lines) > n {
				pid, _ = strconv.Atoi(lines[n])
			}
			return pid > 0
		}) {
			t.Fatalf("%s has left nothing behind", name)
		}
		return pid
	}
	one, two := of("one", 0), of("two", 0)
	callTool(gw, "one__die", `{}`)
	if !poll(patience, func() bool { return syscall.Kill(one, 0) != nil }) {
		t.Errorf("what the dead backend has left is there")
	}
	of("one", 1) // it was started again
	if syscall.Kill(two, 0) != nil {
		t.Error("what the other one has left is gone")
	}
	if code := gw.finish(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := s.mark.processes(); len(left) > 0 {
		t.Errorf("left when the gateway exited: %v", left)
	}
}

// PROC-04: killed at any moment, at its start, at work or while it ends, the gateway takes all along.
func TestPROC04KilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 12 {
		s := newSetup(t, nil, litter("one", ""), litter("two", ""), actor("three", "stubborn", ""))
		gw := s.start()
		moment := time.Duration(random.IntN(300)) * time.Millisecond
		if random.IntN(2) == 0 {
			gw.ask("1", "initialize", initializeParams("2025-11-25"))
			<-time.After(moment)
		} else {
			gw.greet("2025-11-25")
			listTools(t, gw)
			gw.cmd.Process.Signal(syscall.SIGTERM)
			<-time.After(5 * moment)
		}
		gw.cmd.Process.Kill()
		gw.exitCode(patience)
		s.mark.mustBeGone(t, 5*time.Second)
	}
}

// asInit runs the gateway as process 1 of a namespace of its own, as in a container. It returns what unshare runs, and
// the gateway's pid as it is seen from here.
func (s *setup) asInit(args ...string) (*rawClient, int) {
	s.t.Helper()
	cmd := exec.Command("unshare", append([]string{"--user", "--map-root-user", "--pid", "--fork", "--mount-proc", gateway(s.t), "-c", s.config}, args...)...)
	cmd.Env, cmd.Dir = s.env(), s.dir
	c := startRaw(s.t, cmd)
	var pid int
	if !poll(patience, func() bool {
		select {
		case <-c.exited:
			s.t.Fatalf("this test needs unshare, and leave to use it: %s", c.logs())
		default:
		}
		for _, p := range s.mark.processes() {
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

// stat are the state and the parent of a process, "" and 0 if there is none.
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

// zombies counts the dead children of a process that it has not reaped.
func zombies(of int) (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if state, parent := stat(pid); state == "Z" && parent == of {
			n++
		}
	}
	return n
}

// As process 1 it reaps what its backends leave behind, and signals end it in an orderly way.
func TestAsProcess1ItReapsAndEndsInOrder(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			orphans := filepath.Join(t.TempDir(), "orphans")
			const n = 20
			forks := `i=0; while [ $i -lt 20 ]; do (sh -c 'sleep 0.1; echo x >> ` + orphans + `' & ); i=$((i+1)); done; `
			s := newSetup(t, nil, leaving(actor("one", "mirror", ""), forks), litter("two", ""))
			gw, pid := s.asInit()
			gw.greet("2025-11-25")
			listTools(t, gw)
			if !poll(patience, func() bool { return len(notesOf(orphans)) == n }) {
				t.Errorf("%d orphans have lived", len(notesOf(orphans)))
			}
			if !poll(patience, func() bool { return zombies(pid) == 0 }) {
				t.Errorf("%d zombies", zombies(pid))
			}
			if m := callTool(gw, "one__die", `{}`); m.code() != -32603 || !strings.Contains(string(m.Error), "killed") {
				t.Errorf("how it died is not known: %s", m.Raw)
			}
			began := time.Now()
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			if code := gw.exitCode(10 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			t.Logf("it ended within %v", time.Since(began).Round(time.Millisecond))
			if left := s.mark.processes(); len(left) > 0 {
				t.Errorf("left in the namespace: %v", left)
			}
			gw.checkPure()
		})
	}
}
