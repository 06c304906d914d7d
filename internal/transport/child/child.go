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
	"mcpgateway/internal/wire"
)

// A Command describes a child process that serves MCP on its stdin and stdout.
type Command struct {
	Path  string                  // file, relative to Dir; a bare name is looked up in PATH of Env
	Args  []string                // without the program name
	Env   []string                // complete environment, as KEY=value
	Dir   string                  // working directory; "" = that of this process
	Limit int                     // maximum bytes of one message and of the write queue
	Quota *transport.ReceiveQuota // bounds incomplete messages; nil = no bound
	// StallTimeout is the maximum time for which the child may neither read queued bytes nor send
	// anything; then the connection ends. 0 = no limit. The limit does not apply while nothing is
	// queued.
	StallTimeout time.Duration
	// OnStderr is called with each line of the child's stderr that is not empty, in order, from a
	// goroutine of its own. Lines longer than 8 KiB are cut. May be nil.
	OnStderr func(line string)
	// Grace is the time that Close waits after closing stdin, and again after SIGTERM, and the time
	// that orphans have to end after SIGTERM; 0 = 750 ms. Clients give a gateway about 4 s to end.
	// Only tests set Grace.
	Grace time.Duration
	// Mask masks secrets in lines of stderr, before the lines are cut; may be nil.
	Mask func(string) string
	// OnRepair is called after each repair of a message with invalid UTF-8; may be nil.
	OnRepair func()
}

// A Process is the Conn to a child process. When the process ends for any reason, the rest of its
// process group is killed, and Read returns an [*ExitError] after all output of the process, or
// [transport.ErrClosed] after Close. On Linux, if this process is a subreaper (see
// [procgroup.BecomeSubreaper]), orphans that have left the group are also terminated: with SIGTERM,
// and with SIGKILL after Grace.
type Process struct {
	leader       *groupLeader
	stdin        *os.File
	stdout       *os.File
	stderr       *os.File
	lines        *transport.LineReader
	queue        *transport.WriteQueue
	stallTimeout time.Duration
	tail         stderrTail

	stderrDone chan struct{} // closed when stderr has been read to the end
	wg         sync.WaitGroup
	closed     atomic.Bool
	notReading atomic.Bool // StallTimeout has passed
	closeOnce  sync.Once
}

// Start starts the child in a process group of its own. From then on a goroutine reads stderr, so
// that the child cannot block in a write to stderr.
func Start(c Command) (*Process, error) {
	path, err := lookPath(c.Path, c.Dir, c.Env)
	if err != nil {
		return nil, err
	}
	p := &Process{stallTimeout: c.StallTimeout, stderrDone: make(chan struct{})}
	cmd := &exec.Cmd{Path: path, Args: append([]string{c.Path}, c.Args...), Env: c.Env, Dir: c.Dir}
	if err := p.start(cmd, c.Grace); err != nil {
		return nil, explainStartError(path, err)
	}
	p.lines = transport.NewLineReader(transport.FastReader(p.stdout), transport.LineOptions{
		Limit: c.Limit, Quota: c.Quota, RepairUTF8: true, OnRepair: c.OnRepair,
	})
	p.queue = transport.NewWriteQueue(p.stdin, transport.WriteQueueOptions{
		Limit: c.Limit, OnFailure: p.handleClosedStdin, StallTimeout: c.StallTimeout,
		OnStall: func() {
			p.notReading.Store(true)
			_ = p.stdout.SetReadDeadline(time.Now()) // so that Read returns
		},
	})
	p.wg.Go(func() {
		defer close(p.stderrDone)
		copyLines(p.stderr, c.Mask, p.tail.add, c.OnStderr)
	})
	p.wg.Go(func() {
		p.leader.reap(func() {
			deadline := time.Now().Add(pipeDrainTimeout)
			_ = p.stdout.SetReadDeadline(deadline)
			_ = p.stderr.SetReadDeadline(deadline)
		})
	})
	return p, nil
}

// start creates three pipes and starts the process with one end of each.
func (p *Process) start(cmd *exec.Cmd, grace time.Duration) (err error) {
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
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	p.leader, err = startLeader(cmd, grace)
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return err
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	return nil
}

// pipeDrainTimeout is the time for which the pipes are read after the end of the process. The pipes
// already contain all its output, but an orphan may hold them open. The same time is the pause
// before each signal of endSoon, and the time that a process has to end after the end of its
// stdout.
const pipeDrainTimeout = 500 * time.Millisecond

// Pid returns the process id.
func (p *Process) Pid() int { return p.leader.cmd.Process.Pid }

// Read returns the next message of the child, or the reason for the end of the connection.
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
		return m, "", fmt.Errorf(
			"it does not read: for %v it has neither read from its stdin nor written to its stdout",
			p.stallTimeout)
	}
	return m, "", p.exitReason(err)
}

// exitReason returns the error of Read for a child whose stdout has ended with err.
func (p *Process) exitReason(err error) error {
	select {
	case <-p.leader.exited:
		<-p.stderrDone // happens soon, because of the deadline of stderr
		return p.tail.exitError(p.leader.status())
	case <-time.After(pipeDrainTimeout):
	}
	if err == io.EOF {
		return p.tail.exitError("it closed its stdout but runs on")
	}
	return err
}

// Write sends m. It fails only if the queue is full or after Close. If the child has closed its
// stdin, it returns nil: the child has ended or will be ended, and Read reports the end.
func (p *Process) Write(m wire.Message, _ wire.ID) error {
	err := p.queue.Send(m)
	if err == nil || errors.Is(err, transport.ErrFull) || p.closed.Load() {
		return err
	}
	p.handleClosedStdin()
	return nil
}

// handleClosedStdin ends a child that has closed its stdin.
func (p *Process) handleClosedStdin() {
	if !p.closed.Load() {
		p.leader.endSoon()
	}
}

// Close ends the child as MCP's stdio transport requires ("closing the input stream to the child
// process", then SIGTERM, then SIGKILL). It waits up to Grace before each signal. It returns when
// the process has ended and its descendants were terminated.
func (p *Process) Close() error {
	p.closeOnce.Do(func() {
		p.closed.Store(true)
		p.stdin.Close()
		p.queue.Close()
		p.leader.end()
		p.stdout.Close()
		p.wg.Wait()
		p.stderr.Close()
	})
	return nil
}
