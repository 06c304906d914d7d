//go:build unix

package transport

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

// A group is the process group that a child is started in. Everything that the
// child starts is in it, too, unless it takes pains not to be.
//
// The group is led by a holder, a small shell that was there before the child and
// does nothing but wait for the end of a pipe that this process holds. When this
// process dies, in whatever way, the pipe ends and the holder kills the group. It
// is needed beside Linux's PDEATHSIG because that reaches only the child itself,
// not the server that npx or a shell started, and because other systems have
// nothing like it. Where there is no /bin/sh, the child leads its own group.
//
// What leaves the group is known by its mark, a word in its environment. Only Linux
// shows that of other processes. See docs/decisions/021-no-orphans.md.
type group struct {
	mark   string
	holder *exec.Cmd // nil if there is none
	pipe   io.Closer

	after *group // holds what the child has left behind, until that is gone; nil if there is nothing

	mu   sync.Mutex
	pgid int // 0 once it is released, when it may be another's
}

// markEnv is the variable that all processes of a child have in their environment,
// unless they take it out. It holds the child's mark, behind those of the gateways above.
const markEnv = "MCP_GATEWAY_CHILD"

// The holder ignores the signals that are sent to the whole group, or by a
// terminal to everyone. What carries the mark ($1) and descends from the gateway, which its limit of
// message queues ($2) proves, goes first, for the holder goes with the group.
// It is looked for again, since it may have been starting something.
const holderScript = `trap '' HUP INT TERM
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

func startGroup(cmd *exec.Cmd) (*group, error) {
	g, err := newGroup(rand.Text())
	if err != nil {
		return nil, fmt.Errorf("holder: %w", err)
	}
	mark := g.mark
	if above := os.Getenv(markEnv); above != "" {
		mark = above + "," + mark
	}
	cmd.Env = append(cmd.Environ(), markEnv+"="+mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.pgid}
	dieWithParent(cmd.SysProcAttr)
	if err = kin.start(cmd); err != nil {
		g.release()
		return nil, err
	}
	if g.holder == nil {
		g.pgid = cmd.Process.Pid
	}
	return g, nil
}

// newGroup starts a holder, if there is a shell for it. That there is one and it cannot
// be started is an error: what would be left behind is worth more than a late start.
func newGroup(mark string) (*group, error) {
	g := &group{mark: mark}
	holder := exec.Command("/bin/sh", "-c", holderScript, "sh", mark, strconv.FormatUint(descent(), 10))
	holder.Args[0] = "mcp-gateway-holder"
	holder.Env = []string{"PATH=/usr/bin:/bin"}
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err = kin.start(holder); err == nil {
		g.pgid, g.holder, g.pipe = holder.Process.Pid, holder, pipe
		return g, nil
	}
	pipe.Close()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return g, nil
	}
	return nil, err
}

// wait reaps the child and sees to it that nothing of its group stays behind. The holder ends
// with the group. If anything else may be left another takes its place before that: there is no
// moment in which this process could be killed and that would stay.
func (g *group) wait(cmd *exec.Cmd) {
	kin.wait(cmd)
	if g.left() {
		g.after, _ = newGroup(g.mark)
	}
	g.release()
}

func (g *group) terminate() { g.signal(syscall.SIGTERM) }

// kill ends what is left of the group; that nothing is, is no error.
func (g *group) kill() { g.signal(syscall.SIGKILL) }

func (g *group) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pgid != 0 {
		_ = syscall.Kill(-g.pgid, sig)
	}
}

// release kills the group and reaps the holder. Until then the group's id cannot be
// given to others; afterwards signals go nowhere.
func (g *group) release() {
	g.kill()
	g.mu.Lock()
	g.pgid = 0
	g.mu.Unlock()
	if g.holder != nil {
		g.pipe.Close()
		kin.wait(g.holder)
		g.holder = nil
	}
}

// left reports whether the child has left anything behind: after wait, outside of its group.
func (g *group) left() bool { return hasStrays(g.mark) }

// sweep ends what the child has left behind outside of its group.
func (g *group) sweep(grace time.Duration) {
	stopStrays(g.mark, grace)
	if g.after != nil {
		g.after.release()
	}
}
