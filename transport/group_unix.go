//go:build unix

package transport

import (
	"io"
	"os/exec"
	"syscall"
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
type group struct {
	pgid   int
	holder *exec.Cmd // nil if there is none
	pipe   io.Closer
}

// The holder ignores the signals that are sent to the whole group, or by a
// terminal to everyone.
const holderScript = `trap '' HUP INT TERM; read -r never; kill -s KILL 0`

func startGroup(cmd *exec.Cmd) (group, error) {
	g := newGroup()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.pgid}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		g.kill()
		g.release()
		return group{}, err
	}
	if g.holder == nil {
		g.pgid = cmd.Process.Pid
	}
	return g, nil
}

// newGroup starts a holder, if that can be done.
func newGroup() group {
	holder := exec.Command("/bin/sh", "-c", holderScript)
	holder.Args[0] = "mcp-gateway-holder"
	holder.Env = []string{}
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := holder.StdinPipe()
	if err != nil || holder.Start() != nil {
		return group{}
	}
	return group{pgid: holder.Process.Pid, holder: holder, pipe: pipe}
}

func (g group) terminate() { g.signal(syscall.SIGTERM) }

// kill ends what is left of the group; that nothing is, is no error.
func (g group) kill() { g.signal(syscall.SIGKILL) }

func (g group) signal(sig syscall.Signal) {
	if g.pgid != 0 {
		_ = syscall.Kill(-g.pgid, sig)
	}
}

// release reaps the holder, once the group was killed. Until then the group's id
// cannot be given to others.
func (g group) release() {
	if g.holder != nil {
		g.pipe.Close()
		_ = g.holder.Wait()
	}
}
