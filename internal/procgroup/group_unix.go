//go:build unix

package procgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A Group is the process group that a child is started in. Everything that the
// child starts is in it, too, unless it takes pains not to be.
//
// The Group is led by a holder, a small shell that was there before the child and
// does nothing but wait for the end of a pipe that this process holds. When this
// process dies, in whatever way, the pipe ends and the holder kills the group. It
// is needed beside Linux's PDEATHSIG because that reaches only the child itself,
// not the server that npx or a shell started, and because other systems have
// nothing like it. Where there is no /bin/sh, the child leads its own group.
//
// What leaves the group is known by its mark, a word in its environment. Only Linux
// shows that of other processes. See docs/decisions/021-orphaned-processes.md.
type Group struct {
	envMarker    string
	watchdog     *exec.Cmd // nil if there is none
	watchdogPipe io.Closer

	orphanWatchdog *Group // holds what the child has left behind, until that is gone; nil if there is nothing

	mu   sync.Mutex
	pgid int // 0 once it is released, when it may be another's
}

// markerVariable is the variable that all processes of a child have in their environment,
// unless they take it out. It holds the child's mark, behind those of the gateways above.
const markerVariable = "MCP_GATEWAY_CHILD"

// The holder ignores the signals that are sent to the whole group, or by a
// terminal to everyone. What carries the mark ($1) and descends from the gateway, which its limit of
// message queues ($2) proves, goes first, for the holder goes with the group.
// It is looked for again, since it may have been starting something.
const watchdogScript = `trap '' HUP INT TERM
read -r never
for again in 1 2 3; do
	ended=
	for e in $(grep -lsF "$1" /proc/[0-9]*/environ); do
		p=${e%/environ}
		grep -qs "^Max msgqueue size  *$2 " "$p/limits" && kill -s KILL "${p#/proc/}" && ended=1
	done
	[ -n "$ended" ] || break
done
kill -s KILL 0`

func Start(cmd *exec.Cmd) (*Group, error) {
	g, err := startWatchdog(rand.Text())
	if err != nil {
		return nil, fmt.Errorf("holder: %w", err)
	}
	mark := g.envMarker
	if above := os.Getenv(markerVariable); above != "" {
		mark = above + "," + mark
	}
	cmd.Env = append(cmd.Environ(), markerVariable+"="+mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.pgid}
	dieWithParent(cmd.SysProcAttr)
	if err = registry.start(cmd); err != nil {
		g.release()
		return nil, err
	}
	if g.watchdog == nil {
		g.pgid = cmd.Process.Pid
	}
	return g, nil
}

// startWatchdog starts a holder, if there is a shell for it. That there is one and it cannot
// be started is an error: what would be left behind is worth more than a late start.
func startWatchdog(mark string) (*Group, error) {
	g := &Group{envMarker: mark}
	holder := exec.Command("/bin/sh", "-c", watchdogScript, "sh", mark, strconv.FormatUint(descentLimit(), 10))
	holder.Args[0] = "mcp-gateway-holder"
	holder.Env = []string{"PATH=/usr/bin:/bin"}
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err = registry.start(holder); err == nil {
		g.pgid, g.watchdog, g.watchdogPipe = holder.Process.Pid, holder, pipe
		return g, nil
	}
	pipe.Close()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return g, nil
	}
	return nil, err
}

// Wait reaps the child and sees to it that nothing of its group stays behind. The holder ends
// with the group. If anything else may be left another takes its place before that: there is no
// moment in which this process could be killed and that would stay.
func (g *Group) Wait(cmd *exec.Cmd) {
	registry.wait(cmd)
	if g.HasOrphans() {
		g.orphanWatchdog, _ = startWatchdog(g.envMarker)
	}
	g.release()
}

func (g *Group) Terminate() { g.signal(syscall.SIGTERM) }

// Kill ends what is left of the group; that nothing is, is no error.
func (g *Group) Kill() { g.signal(syscall.SIGKILL) }

func (g *Group) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pgid != 0 {
		_ = syscall.Kill(-g.pgid, sig)
	}
}

// release kills the group and reaps the holder. Until then the group's id cannot be
// given to others; afterwards signals go nowhere.
func (g *Group) release() {
	g.Kill()
	g.mu.Lock()
	g.pgid = 0
	g.mu.Unlock()
	if g.watchdog != nil {
		g.watchdogPipe.Close()
		registry.wait(g.watchdog)
		g.watchdog = nil
	}
}

// HasOrphans reports whether the child has left anything behind: after wait, outside of its group.
func (g *Group) HasOrphans() bool { return hasOrphans(g.envMarker) }

// KillOrphans ends what the child has left behind outside of its group.
func (g *Group) KillOrphans(grace time.Duration) {
	killOrphans(g.envMarker, grace)
	if g.orphanWatchdog != nil {
		g.orphanWatchdog.release()
	}
}
