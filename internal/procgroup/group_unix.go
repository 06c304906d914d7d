//go:build unix

package procgroup

import (
	"context"
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

// A Group is the process group of a child. The descendants of the child also belong to the group,
// unless they leave it on purpose.
//
// The leader of the Group is a watchdog: a small shell that is started before the child and waits
// for the end of a pipe that this process holds open. When this process dies for any reason, the
// pipe ends and the watchdog kills the group. PDEATHSIG does not suffice: it exists only on Linux,
// and reaches only the child itself, not a server that npx or a shell has started. Without an
// executable /bin/sh there is no watchdog, and the child is the leader of the group.
//
// Descendants that have left the group are recognised by a marker in their environment. Only Linux
// makes the environment of other processes readable. See docs/decisions/021-orphaned-processes.md.
type Group struct {
	envMarker    string
	watchdog     *exec.Cmd // nil = none
	watchdogPipe io.Closer

	orphanWatchdog *Group // watchdog for the orphans of the ended child; nil = none

	mu   sync.Mutex
	pgid int // 0 after release: the kernel may then reuse the id
}

// markerVariable is the environment variable that contains the marker of the child. All descendants
// of the child inherit the variable, unless they remove it. If this gateway was itself started by a
// gateway, the marker follows the markers of the gateways above.
const markerVariable = "MCP_GATEWAY_CHILD"

// watchdogScript ignores the signals that are sent to the whole group or by a terminal. It kills
// the group last, because the group includes the watchdog itself. Before that, it kills the
// processes whose environment contains the marker ($1) and that descend from the gateway, as their
// limit of message queues ($2) proves. It searches up to three times, because such a process may
// have started another one during the search.
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

// Start starts cmd in a new Group. cmd.Env gets the marker, and cmd.SysProcAttr is replaced.
func Start(cmd *exec.Cmd) (*Group, error) {
	g, err := startWatchdog(rand.Text())
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	marker := g.envMarker
	if above := os.Getenv(markerVariable); above != "" {
		marker = above + "," + marker
	}
	cmd.Env = append(cmd.Environ(), markerVariable+"="+marker)
	if err := g.start(cmd); err != nil {
		return nil, err
	}
	return g, nil
}

// Run starts cmd in a process group of its own and waits for its end, at most until ctx is done. It
// then kills the rest of the group. A descendant that has left the group, such as an agent that
// keeps passwords, is not affected, in contrast to [Start]. The error is that of the start; the
// exit status is in cmd.ProcessState. cmd.SysProcAttr is replaced.
func Run(ctx context.Context, cmd *exec.Cmd) error {
	g, err := startWatchdog(rand.Text())
	if err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	if err := g.start(cmd); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, g.Kill)
	defer stop()
	registry.wait(cmd)
	g.release()
	return nil
}

// start starts cmd in the group. If it fails, the group is released.
func (g *Group) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.pgid}
	dieWithParent(cmd.SysProcAttr)
	if err := registry.start(cmd); err != nil {
		g.release()
		return err
	}
	if g.watchdog == nil {
		g.pgid = cmd.Process.Pid
	}
	return nil
}

// startWatchdog starts a watchdog, unless /bin/sh is missing or this process is not permitted to
// execute it. It fails if the shell cannot be started for another reason, because a failed start of
// a backend is better than orphans.
func startWatchdog(marker string) (*Group, error) {
	g := &Group{envMarker: marker}
	watchdog := exec.Command("/bin/sh", "-c", watchdogScript, "sh",
		marker, strconv.FormatUint(descentLimit(), 10))
	watchdog.Args[0] = "mcp-gateway-watchdog"
	watchdog.Env = []string{"PATH=/usr/bin:/bin"}
	watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := watchdog.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err = registry.start(watchdog); err == nil {
		g.pgid, g.watchdog, g.watchdogPipe = watchdog.Process.Pid, watchdog, pipe
		return g, nil
	}
	pipe.Close()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return g, nil
	}
	return nil, err
}

// Wait waits for the child and kills the rest of its group, including the watchdog. If there are
// orphans, it starts another watchdog for them before it kills the group, so that the orphans do
// not survive this process. The exit status is in cmd.ProcessState.
func (g *Group) Wait(cmd *exec.Cmd) {
	registry.wait(cmd)
	if g.HasOrphans() {
		g.orphanWatchdog, _ = startWatchdog(g.envMarker)
	}
	g.release()
}

// Terminate sends SIGTERM to the group. It does nothing after Wait.
func (g *Group) Terminate() { g.signal(syscall.SIGTERM) }

// Kill sends SIGKILL to the group. It does nothing after Wait.
func (g *Group) Kill() { g.signal(syscall.SIGKILL) }

func (g *Group) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pgid != 0 {
		_ = syscall.Kill(-g.pgid, sig)
	}
}

// release kills the group and reaps the watchdog. The kernel does not reuse the id of the group
// before the watchdog is reaped. After release, signal does nothing.
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

// HasOrphans reports whether descendants of the child run outside of its group. It must be called
// after the child has ended, and returns false on systems other than Linux.
func (g *Group) HasOrphans() bool { return hasOrphans(g.envMarker) }

// KillOrphans ends the descendants of the child outside of its group: it sends SIGTERM, and SIGKILL
// after grace.
func (g *Group) KillOrphans(grace time.Duration) {
	killOrphans(g.envMarker, grace)
	if g.orphanWatchdog != nil {
		g.orphanWatchdog.release()
	}
}
