package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/procgroup"

	"mcpgateway/internal/wire"
)

// Command says how to start a child process that speaks MCP on its stdio.
type Command struct {
	Path  string                  // a file, seen from Dir, or a name that is looked up in the PATH of Env
	Args  []string                // without the name itself
	Env   []string                // all of its environment, as KEY=value
	Dir   string                  // "" = ours
	Limit int                     // bytes of one message, and of what may wait to be written
	Quota *transport.ReceiveQuota // counts what is being received; nil = nothing does
	// StallTimeout is how long the child may neither take anything of what waits to be written,
	// nor say anything, before the conversation ends; 0 = for ever. One that has taken
	// everything may take its time.
	StallTimeout time.Duration
	// OnStderr is called with each line that the child writes there, in order,
	// from a goroutine of its own. Lines over 8 KiB are cut.
	OnStderr func(line string)
	// Grace is how long Close waits after closing stdin, and again after
	// SIGTERM, and how long what the child leaves behind has; 0 = 750 ms. Clients give a gateway 4 s or so to end.
	Grace time.Duration
	// Mask takes secrets out of what it writes on stderr, before anything is cut;
	// may be nil.
	Mask func(string) string
	// OnRepair is called when a message was no UTF-8 and was mended; may be nil.
	OnRepair func()
}

// A Process is the Conn to a child process. When the process ends, for whatever
// reason, Read returns an [*ExitError] once everything it wrote has been read,
// and what is left of its process group is killed. On Linux, if this process adopts
// (see [BecomeSubreaper]), what has left the group is ended, too: with SIGTERM, and after Grace
// with SIGKILL.
type Process struct {
	cmd          *exec.Cmd
	group        *procgroup.Group
	grace        time.Duration
	lines        *transport.LineReader
	stdin        *os.File
	stdout       *os.File
	stderr       *os.File
	queue        *transport.WriteQueue
	stallTimeout time.Duration
	tail         stderrTail

	exited       chan struct{} // closed when the process is reaped
	leftOrphans  bool          // it ended well and left others; set before that
	stderrDone   chan struct{} // closed when its stderr has been read to the end
	wg           sync.WaitGroup
	closed       atomic.Bool
	notReading   atomic.Bool // it does not read
	signalled    atomic.Bool // hurry has sent it a signal
	closeOnce    sync.Once   // Close
	escalateOnce sync.Once   // its stdin
}

// Start starts the child in a process group of its own. Its stderr is drained
// from the start, so that it cannot block there.
func Start(c Command) (*Process, error) {
	path, err := lookPath(c.Path, c.Dir, c.Env)
	if err != nil {
		return nil, err
	}
	p := &Process{grace: c.Grace, stallTimeout: c.StallTimeout, exited: make(chan struct{}), stderrDone: make(chan struct{})}
	if p.grace == 0 {
		p.grace = 750 * time.Millisecond
	}
	p.cmd = &exec.Cmd{Path: path, Args: append([]string{c.Path}, c.Args...), Env: c.Env, Dir: c.Dir}
	if err := p.start(); err != nil {
		return nil, explainStartError(path, err)
	}
	p.lines = transport.NewLineReader(transport.FastReader(p.stdout), transport.LineOptions{
		Limit: c.Limit, Quota: c.Quota, RepairUTF8: true, OnRepair: c.OnRepair,
	})
	p.queue = transport.NewWriteQueue(p.stdin, transport.WriteQueueOptions{
		Limit: c.Limit, OnFailure: p.escalate, StallTimeout: c.StallTimeout,
		OnStall: func() {
			p.notReading.Store(true)
			_ = p.stdout.SetReadDeadline(time.Now()) // so that Read says so
		},
	})
	p.wg.Go(func() {
		defer close(p.stderrDone)
		copyLines(p.stderr, c.Mask, p.tail.add, c.OnStderr)
	})
	p.wg.Go(p.wait)
	return p, nil
}

// start makes the three pipes and starts the process at their far ends.
func (p *Process) start() (err error) {
	var ours, theirs [3]*os.File
	closeAll := func(files [3]*os.File) {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			closeAll(theirs)
			return fmt.Errorf("pipe: %w", err)
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	p.group, err = procgroup.Start(p.cmd)
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return err
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	return nil
}

// pipeDrainTimeout is how long the pipes of a dead child are still read: what it
// wrote is in them already, but a process that left its group may hold them open.
const pipeDrainTimeout = 500 * time.Millisecond

// Wait reaps the child and sees to it that nothing of it stays behind.
func (p *Process) wait() {
	p.group.Wait(p.cmd) // the state is read from cmd.ProcessState
	p.leftOrphans = p.cmd.ProcessState.Success() && p.group.HasOrphans()
	deadline := time.Now().Add(pipeDrainTimeout)
	_ = p.stdout.SetReadDeadline(deadline)
	_ = p.stderr.SetReadDeadline(deadline)
	close(p.exited)
	p.group.KillOrphans(p.grace)
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

func (p *Process) Read() (wire.Message, wire.ID, error) {
	m, err := p.lines.ReadMessage()
	switch err.(type) {
	case nil, *transport.MalformedError:
		p.queue.MarkProgress()
		return m, "", err
	}
	switch {
	case p.closed.Load():
		return m, "", transport.ErrClosed
	case p.notReading.Load():
		return m, "", fmt.Errorf("it does not read: for %v it has taken nothing of what it was sent, nor said anything", p.stallTimeout)
	}
	return m, "", p.exitReason(err)
}

// exitReason tells why nothing more will come from a child whose stdout has ended.
func (p *Process) exitReason(err error) error {
	select {
	case <-p.exited:
		<-p.stderrDone // soon: wait has set a deadline
		status := exitStatus(p.cmd.ProcessState)
		if p.signalled.Load() {
			status = "it closed its stdin but ran on, so that the gateway ended it (" + status + ")"
		}
		if p.leftOrphans {
			status += "; it has left a process behind, but a server must not go into the background"
		}
		return p.tail.exitError(status)
	case <-time.After(pipeDrainTimeout):
	}
	if err == io.EOF {
		return p.tail.exitError("it closed its stdout but runs on")
	}
	return err
}

func exitStatus(s *os.ProcessState) string {
	if s.Exited() {
		return fmt.Sprintf("exit %d", s.ExitCode())
	}
	return s.String()
}

// Write sends m. That the child has closed its stdin is no error here: it is dead
// or dying, and Read will say of what.
func (p *Process) Write(m wire.Message, _ wire.ID) error {
	err := p.queue.Send(m)
	if err == nil || errors.Is(err, transport.ErrFull) || p.closed.Load() {
		return err
	}
	p.escalate()
	return nil
}

// escalate ends a child that has closed its stdin and does not end by itself.
func (p *Process) escalate() {
	if p.closed.Load() {
		return
	}
	p.escalateOnce.Do(func() {
		for i, step := range []func(){p.group.Terminate, p.group.Kill} {
			time.AfterFunc(time.Duration(i+1)*pipeDrainTimeout, func() {
				if !p.waitExit(0) {
					p.signalled.Store(true)
					step()
				}
			})
		}
	})
}

// Close ends the child as MCP's stdio transport asks a client to ("closing the
// input stream to the child process", then SIGTERM, then SIGKILL), each step
// given its grace, and waits until it and what it has left behind is gone.
func (p *Process) Close() error {
	p.closeOnce.Do(func() {
		p.closed.Store(true)
		p.stdin.Close()
		p.queue.Close()
		for _, step := range []func(){p.group.Terminate, p.group.Kill} {
			if !p.waitExit(p.grace) {
				step()
			}
		}
		<-p.exited
		p.stdout.Close()
		p.wg.Wait()
		p.stderr.Close()
	})
	return nil
}

// waitExit waits for the process to end, for a while.
func (p *Process) waitExit(grace time.Duration) bool {
	select {
	case <-p.exited:
		return true
	default:
	}
	select {
	case <-p.exited:
		return true
	case <-time.After(grace):
		return false
	}
}
