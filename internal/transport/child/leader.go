package child

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/procgroup"
)

// A groupLeader is a child process that leads a process group, from its start to its end.
// All methods may be called concurrently.
type groupLeader struct {
	cmd   *exec.Cmd
	group *procgroup.Group
	grace time.Duration // time before each signal of end

	exited      chan struct{} // closed when the process has been reaped
	leftOrphans bool          // exit status 0, but orphans are left; set before exited
	signalled   atomic.Bool   // endSoon has sent a signal
	endSoonOnce sync.Once
}

// startLeader starts cmd in a process group of its own. The caller must call reap.
func startLeader(cmd *exec.Cmd, grace time.Duration) (*groupLeader, error) {
	if grace == 0 {
		grace = 750 * time.Millisecond
	}
	group, err := procgroup.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &groupLeader{cmd: cmd, group: group, grace: grace, exited: make(chan struct{})}, nil
}

// reap waits until the process has ended, calls onExit, and ends the descendants of the process.
func (g *groupLeader) reap(onExit func()) {
	g.group.Wait(g.cmd)
	g.leftOrphans = g.cmd.ProcessState.Success() && g.group.HasOrphans()
	onExit()
	close(g.exited)
	g.group.KillOrphans(g.grace)
}

// waitExit waits up to timeout for the process to end and reports whether it has.
func (g *groupLeader) waitExit(timeout time.Duration) bool {
	select {
	case <-g.exited:
		return true
	default:
	}
	select {
	case <-g.exited:
		return true
	case <-time.After(timeout):
		return false
	}
}

// end waits up to grace for the process to end, then again after SIGTERM, and then kills it. It
// returns when the process has ended.
func (g *groupLeader) end() {
	for _, step := range []func(){g.group.Terminate, g.group.Kill} {
		if !g.waitExit(g.grace) {
			step()
		}
	}
	<-g.exited
}

// endSoon returns at once. It signals a process that has closed its stdin, unless the process soon
// ends by itself.
func (g *groupLeader) endSoon() {
	g.endSoonOnce.Do(func() {
		for i, step := range []func(){g.group.Terminate, g.group.Kill} {
			time.AfterFunc(time.Duration(i+1)*pipeDrainTimeout, func() {
				if !g.waitExit(0) {
					g.signalled.Store(true)
					step()
				}
			})
		}
	})
}

// status describes how the process has ended. It must be called after the end.
func (g *groupLeader) status() string {
	status := exitStatus(g.cmd.ProcessState)
	if g.signalled.Load() {
		status = "it closed its stdin but ran on, so that the gateway ended it (" + status + ")"
	}
	if g.leftOrphans {
		status += "; it has left a process behind, but a server must not go into the background"
	}
	return status
}

// exitStatus describes the end of a process, such as "exit 1" or "signal: killed".
func exitStatus(s *os.ProcessState) string {
	if s.Exited() {
		return fmt.Sprintf("exit %d", s.ExitCode())
	}
	return s.String()
}
