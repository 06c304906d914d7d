//go:build unix

package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest/proctest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func notification(i, size int) wire.Message {
	return wire.NewNotification("n",
		fmt.Appendf(nil, `{"i":%d,"x":"%s"}`, i, strings.Repeat("x", size)))
}

func shell(script string) Command {
	return Command{Path: "sh", Args: []string{"-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Limit: 1 << 20, Grace: 300 * time.Millisecond}
}

func spawn(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// readNumber reads a notification {"n":N} from the child, such as a pid.
func readNumber(t *testing.T, p *Process) int {
	t.Helper()
	m, _, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.Trim(string(m.Part(wire.PartParams)), `{"n:}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const say = `say() { printf '{"jsonrpc":"2.0","method":"n","params":{"n":%s}}\n' "$1"; }; `

func TestChildEchoesLineByLine(t *testing.T) {
	p := spawn(t, shell("cat"))
	for i := range 50 {
		if err := p.Write(notification(i, i*300), ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		if m, _, err := p.Read(); err != nil ||
			string(m.Raw()) != string(notification(i, i*300).Raw()) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := p.Read(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// START-04: the error of Read contains the exit code and the last lines of stderr.
func TestSTART04ExitErrorContainsExitCodeAndStderr(t *testing.T) {
	p := spawn(t,
		shell(
			"i=0; while [ $i -lt 20 ]; do echo line $i >&2; i=$((i+1)); done; echo boom >&2; exit 127"))
	_, _, err := p.Read()
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Status != "exit 127" ||
		!strings.HasSuffix(exit.Stderr, "line 19 | boom") ||
		strings.Contains(exit.Stderr, "line 15 ") {
		t.Errorf("got %v", err)
	}
}

// The text of stderr begins with the line that mentions an error, even if a stack trace follows.
func TestStderrTailBeginsWithTheCause(t *testing.T) {
	for _, cause := range []string{
		"Error: Cannot find module 'x'", "panic: runtime error: index out of range",
		"panic: no such table",
		"fatal: out of memory", "thread 'main' panicked at src/main.rs:3:5:",
		`Exception in thread "main" java.lang.IllegalStateException: x`,
	} {
		var l stderrTail
		for _, line := range []string{"starting", cause, "", "1", "2", "3", "4", "5"} {
			l.add(line)
		}
		if got, want := l.String(), cause+" … 1 | 2 | 3 | 4 | 5"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Old lines of stderr are not presented as the cause of the end.
func TestExitErrorShowsTheAgeOfOldStderr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stderrTail
		want := func(want string) {
			t.Helper()
			if got := l.exitError("signal: killed").Error(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		time.Sleep(time.Minute)
		want("signal: killed")
		l.add("no such tool")
		time.Sleep(staleStderr - 1)
		want("signal: killed; its last words: no such tool")
		time.Sleep(35*time.Second + 1)
		want("signal: killed; its last words, 45s before: no such tool")
		l.add("boom")
		want("signal: killed; its last words: boom")
		l.add("bye")
		want("signal: killed; its last words: boom | bye")
	})
}

func TestExitErrorNamesTheSignal(t *testing.T) {
	p := spawn(t, shell("kill -9 $$"))
	if _, _, err := p.Read(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("got %v", err)
	}
}

// The output of a child is read before its end is reported.
func TestLastMessagesOfAnEndedChildAreRead(t *testing.T) {
	p := spawn(t, shell(say+"say 1; say 2; exit 3"))
	proctest.Eventually(t, "exit", func() bool { return p.leader.waitExit(0) })
	if readNumber(t, p) != 1 || readNumber(t, p) != 2 {
		t.Error("messages are out of order")
	}
	if _, _, err := p.Read(); err == nil || err.Error() != "exit 3" {
		t.Errorf("got %v", err)
	}
}

// After a write to a child that has ended, Read reports the end of the child, and not a broken
// pipe.
func TestWritingToAnEndedChild(t *testing.T) {
	p := spawn(t, shell("exit 3"))
	proctest.Eventually(t, "exit", func() bool { return p.leader.waitExit(0) })
	if err := p.Write(notification(1, 0), ""); err != nil {
		t.Errorf("Write: %v", err)
	}
	if _, _, err := p.Read(); err == nil || err.Error() != "exit 3" {
		t.Errorf("Read: %v", err)
	}
}

// A child that closes its stdin but does not end is terminated, because it is useless.
func TestAChildThatClosesItsStdinIsEnded(t *testing.T) {
	// Not parallel: a process that another test is starting would hold the read end for a moment,
	// and the only write would succeed.
	p := spawn(t, shell("exec <&-; "+say+"say 0; while :; do sleep 0.01; done"))
	readNumber(t, p)
	if err := p.Write(notification(1, 0), ""); err != nil {
		t.Errorf("Write: %v", err)
	}
	if _, _, err := p.Read(); err == nil ||
		err.Error() != "it closed its stdin but ran on, so that the gateway ended it (signal: terminated)" {
		t.Errorf("Read: %v", err)
	}
}

// Such a child is also terminated if the failed write was delayed to the end of a burst and no
// write follows.
func TestAChildThatClosesItsStdinDuringAWriteIsEnded(t *testing.T) {
	// Not parallel: a process that another test is starting would hold the read end for a moment,
	// and the only write would succeed.
	p := spawn(t, shell("exec <&-; "+say+"say 0; while :; do sleep 0.01; done"))
	readNumber(t, p)
	burst := new(wire.Burst)
	if err := p.Write(notification(1, 0).WithBurst(burst), ""); err != nil {
		t.Errorf("Write: %v", err)
	}
	burst.End()
	if _, _, err := p.Read(); err == nil ||
		err.Error() != "it closed its stdin but ran on, so that the gateway ended it (signal: terminated)" {
		t.Errorf("Read: %v", err)
	}
}

// FRAME-07: a child that floods its stderr is not blocked.
func TestFRAME07StderrIsReadFromTheStart(t *testing.T) {
	var mu sync.Mutex
	count := 0
	c := shell(
		"i=0; while [ $i -lt 4000 ]; do echo 'a wall of text, fifty characters long, on stderr' >&2; i=$((i+1)); done; read -r line; echo \"$line\"")
	c.OnStderr = func(string) { mu.Lock(); count++; mu.Unlock() }
	p := spawn(t, c)
	if err := p.Write(notification(1, 0), ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Read(); err != nil {
		t.Error(err)
	}
	p.Close()
	if count != 4000 {
		t.Errorf("%d lines, want 4000", count)
	}
}

func TestStderrLinesAreCutNotSplit(t *testing.T) {
	var got []string
	copyLines(strings.NewReader(strings.Repeat("x", 3*maxStderrLine)+"\nshort\r\n\nlast"), nil,
		func(s string) { got = append(got, s) })
	if len(got) != 3 || len(got[0]) != maxStderrLine || got[1] != "short" || got[2] != "last" {
		t.Errorf("%d lines, the first of %d bytes", len(got), len(got[0]))
	}
}

// Close closes stdin, sends SIGTERM and sends SIGKILL, and waits before each signal.
func TestCloseEndsTheChildStepByStep(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name, script, mark string
	}{
		{"on stdin's end", "cat >/dev/null; echo eof > $MARK", "eof"},
		{"on SIGTERM", "trap 'echo term > $MARK; exit' TERM; " + say +
			"say 0; while :; do sleep 0.01; done", "term"},
		{"on SIGKILL", "trap '' TERM; " + say +
			"say 0; echo started > $MARK; while :; do sleep 0.01; done", "started"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mark := filepath.Join(dir, strings.ReplaceAll(tt.name, " ", "-"))
			c := shell(tt.script)
			c.Env = append(c.Env, "MARK="+mark)
			p := spawn(t, c)
			if tt.mark != "eof" {
				readNumber(t, p) // the trap is set
			}
			began := time.Now()
			p.Close()
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
			if text, _ := os.ReadFile(mark); strings.TrimSpace(string(text)) != tt.mark {
				t.Errorf("the script wrote %q", text)
			}
			if proctest.Exists(p.Pid()) {
				t.Error("the process still runs")
			}
		})
	}
}

// PROC-01: the descendants of a child end together with the child, after Close or when the child
// dies.
func TestPROC01GrandchildrenEndWithTheChild(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	for name, end := range map[string]func(*Process){
		"Close": func(p *Process) { p.Close() },
		"death": func(p *Process) { _ = syscall.Kill(p.Pid(), syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			p := spawn(t,
				shell(say+
					"trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' & say $!; wait"))
			grandchild := readNumber(t, p)
			end(p)
			proctest.Eventually(t, "the grandchild's end",
				func() bool { return !proctest.Exists(grandchild) })
		})
	}
}

// The end of a child is noticed even if a process outside of its group keeps its stdout open.
func TestTheEndOfAChildIsNoticedDespiteAnOpenStdout(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Log("no setsid here: the straggler stays in the group, and is killed")
	}
	p := spawn(t, shell(say+"setsid sleep 30 & say $!; exit 5"))
	straggler := readNumber(t, p)
	defer syscall.Kill(straggler, syscall.SIGKILL)
	if _, _, err := p.Read(); err == nil || !strings.Contains(err.Error(), "exit 5") {
		t.Errorf("got %v", err)
	}
}

// FRAME-08: writing to a child that never reads does not block, and Close ends the child.
func TestFRAME08AChildThatNeverReads(t *testing.T) {
	t.Parallel()
	p := spawn(t, shell("trap '' TERM; while :; do sleep 0.01; done"))
	var err error
	for i := 0; err == nil; i++ {
		err = p.Write(notification(i, 500<<10), "")
	}
	if !errors.Is(err, transport.ErrFull) {
		t.Errorf("got %v", err)
	}
	began := time.Now()
	p.Close()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// A relative path is relative to the directory of the child.
func TestARelativeCommandIsRelativeToItsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte("#!/bin/sh\nexit 8\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	p := spawn(t, Command{Path: "./run.sh", Dir: dir, Limit: 1000})
	if _, _, err := p.Read(); err == nil || err.Error() != "exit 8" {
		t.Errorf("got %v", err)
	}
}

// A child that has closed its stdin is ended even if it ignores SIGTERM.
func TestAChildThatClosesItsStdinAndIgnoresSIGTERMIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	p := spawn(t, shell("trap '' TERM; exec <&-; "+say+"say 0; while :; do sleep 0.01; done"))
	readNumber(t, p)
	if err := p.Write(notification(1, 0), ""); err != nil {
		t.Errorf("Write: %v", err)
	}
	if _, _, err := p.Read(); err == nil ||
		err.Error() != "it closed its stdin but ran on, so that the gateway ended it (signal: killed)" {
		t.Errorf("Read: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plain")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, env, want string }{
		{"no-such-command", "PATH=" + dir,
			`command "no-such-command" is in no directory of its PATH`},
		{"no-such-command", "X=", `command "no-such-command" is in no directory of its PATH (`},
		{filepath.Join(dir, "none"), "", `does not exist`},
		{file, "", `cannot be executed`},
		{"sh -c 'echo x'", "PATH=/bin:/usr/bin",
			`command "sh -c 'echo x'" is in no directory of its PATH (/bin:/usr/bin): "sh" is a program, what follows it belongs in args`},
		{"/bin/sh -c true", "", `"/bin/sh" is a program, what follows it belongs in args`},
		{"no-such-command -c true", "PATH=" + dir, `is in no directory of its PATH`},
	} {
		_, err := Start(Command{Path: tt.path, Env: []string{tt.env}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.path, err, tt.want)
		}
	}
	c := shell("true")
	c.Dir = filepath.Join(dir, "missing")
	if _, err := Start(c); err == nil {
		t.Error("no error for a missing directory")
	}
}

// A bare name is looked up in the PATH of the child.
func TestCommandIsLookedUpInPATHOfTheChild(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\nexit 9\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	p := spawn(t, Command{Path: "mine", Env: []string{"PATH=/nowhere:" + dir}, Limit: 1000})
	if _, _, err := p.Read(); err == nil || err.Error() != "exit 9" {
		t.Errorf("got %v", err)
	}
}

// PROC-04: when this process is killed, its descendants are killed, even if they ignore all signals
// but SIGKILL. The test starts itself as the process to kill.
func TestPROC04ChildrenDoNotOutliveAKilledParent(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	if os.Getenv("BE_THE_PARENT") != "" {
		p, err := Start(func() Command {
			c := shell(say +
				"trap '' TERM HUP INT; sh -c 'trap \"\" TERM HUP INT; while :; do sleep 0.05; done' & say $$; say $!; while :; do sleep 0.05; done")
			return c
		}())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("pids %d %d\n", readNumber(t, p), readNumber(t, p))
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestPROC04ChildrenDoNotOutliveAKilledParent$")
	parent.Env = append(os.Environ(), "BE_THE_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child, grandchild int
	if _, err := fmt.Fscanf(out, "pids %d %d\n", &child, &grandchild); err != nil {
		t.Fatal(err)
	}
	if !proctest.Exists(child) || !proctest.Exists(grandchild) {
		t.Fatal("the processes do not run")
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	proctest.Eventually(t, "their end",
		func() bool { return !proctest.Exists(child) && !proctest.Exists(grandchild) })
}

// Without any PATH, programs are looked up in the standard directories.
func TestACommandIsFoundWithoutAnyPATH(t *testing.T) {
	t.Setenv("PATH", "") // restored at the end of the test
	os.Unsetenv("PATH")
	p := spawn(t,
		Command{Path: "sh", Args: []string{"-c", "exit 6"}, Env: []string{"X=1"}, Limit: 1000})
	if _, _, err := p.Read(); err == nil || err.Error() != "exit 6" {
		t.Errorf("got %v", err)
	}
}

// If a file exists but cannot be started, the error contains the reason.
func TestStartErrorsOfFiles(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ text, want string }{
		"no program": {"no program, and no script",
			`is no program of this system, nor a script that begins with #!`},
		"empty": {"", `is no program of this system`},
		"no interpreter": {"#!/no/such/node\n",
			`is a script whose first line names a program that does not exist: "#!/no/such/node"`},
		"from Windows": {"#!/bin/sh\r\necho\n",
			`is a script whose first line names a program that does not exist: "#!/bin/sh\r"`},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tt.text), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(Command{Path: path, Limit: 1000}); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	if _, err := Start(Command{Path: dir, Limit: 1000}); err == nil ||
		!strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Start(Command{Path: "/bin/sh", Args: []string{strings.Repeat("x", 4<<20)},
		Limit: 1000}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a long argument: %v", err)
	}
}

// A child that closes its stdout is treated as ended, even if it continues to run.
func TestAChildThatClosesItsStdoutHasEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	p := spawn(t,
		shell("echo 'going silent' >&2; exec >&-; trap '' TERM; while :; do sleep 0.01; done"))
	_, _, err := p.Read()
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Status != "it closed its stdout but runs on" ||
		exit.Stderr != "going silent" {
		t.Errorf("got %v", err)
	}
	p.Close()
	if proctest.Exists(p.Pid()) {
		t.Error("the process still runs")
	}
}

// A stopped child does not receive SIGTERM, but is killed nevertheless.
func TestAChildThatIsStoppedIsEnded(t *testing.T) {
	t.Parallel()
	p := spawn(t, shell(say+"trap 'exit' TERM; say 1; kill -s STOP $$; read -r never"))
	readNumber(t, p)
	p.Close()
	if proctest.Exists(p.Pid()) {
		t.Error("the process still runs")
	}
}

// The error of a child that goes into the background does not mention a process that remains in the
// group, because the process is killed.
func TestExitErrorOfADaemon(t *testing.T) {
	p := spawn(t, shell(say+"say 1; sleep 60 & exit 0"))
	readNumber(t, p)
	if _, _, err := p.Read(); err == nil || err.Error() != "exit 0" {
		t.Errorf("got %v", err)
	}
}

// A fork without free descriptors for the new process fails with EBADF, which does not help the
// operator.
func TestStartErrorWithoutDescriptors(t *testing.T) {
	err := explainStartError("/bin/sh",
		&fs.PathError{Op: "fork/exec", Path: "/bin/sh", Err: syscall.EBADF})
	if !errors.Is(err, syscall.EMFILE) || !strings.HasPrefix(err.Error(), "too many open files") {
		t.Errorf("%v", err)
	}
}

// FRAME-08: the connection to a child that does not read ends with an error that reports this. A
// child that has read everything may be busy for any time.
func TestFRAME08AChildThatDoesNotReadIsDisconnected(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	c := shell(say + "say 0; exec sleep 60")
	c.StallTimeout = 300 * time.Millisecond
	p := spawn(t, c)
	readNumber(t, p)
	began := time.Now()
	for i := range 3 {
		if err := p.Write(notification(i, 200<<10), ""); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := p.Read()
	if took := time.Since(began); err == nil ||
		!strings.HasPrefix(err.Error(), "it does not read: for 300ms ") || took < c.StallTimeout ||
		took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	c = shell(say + "read -r l; sleep 1; say 0; sleep 60")
	c.StallTimeout = 300 * time.Millisecond
	busy := spawn(t, c)
	for i := range 3 {
		if err := busy.Write(notification(i, 100), ""); err != nil {
			t.Fatal(err)
		}
	}
	readNumber(t, busy)
}
