//go:build unix

package transport

import (
	"os/exec"
	"syscall"
)

// A group is the process group of a child, which it leads. Everything that the
// child starts is in it, unless it takes pains not to be.
type group struct {
	pgid  int
	guard *Guard
}

func startGroup(cmd *exec.Cmd, guard *Guard) (group, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if err := guard.startWatched(cmd); err != nil {
		return group{}, err
	}
	return group{pgid: cmd.Process.Pid, guard: guard}, nil
}

func (g group) terminate() { _ = syscall.Kill(-g.pgid, syscall.SIGTERM) }

// kill ends what is left of the group; that nothing is, is no error. The id
// cannot have been given to others: it is taken for as long as the group has
// a member, and kill is called right after the leader was reaped.
func (g group) kill() {
	_ = syscall.Kill(-g.pgid, syscall.SIGKILL)
	g.guard.forget(g.pgid)
}

func (g group) release() {}
