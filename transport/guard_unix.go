//go:build unix

package transport

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// A Guard is a small process beside this one that outlives it and then kills
// the process groups of the children that this one did not end itself, as
// happens when it is killed with SIGKILL. It is needed beside Linux's
// PDEATHSIG because that reaches only the child itself, not the server that npx
// or a shell started, and because other systems have nothing like it.
//
// The zero Guard is ready; the process is started with the first child. Where
// there is no /bin/sh, a Guard does nothing. A nil Guard does nothing either.
type Guard struct {
	mu    sync.Mutex
	tried bool
	cmd   *exec.Cmd
	to    io.WriteCloser
}

// The guard reads "+ pgid" and "- pgid" until its stdin ends, which it does
// when this process ends, in whatever way. It ignores the signals that a
// terminal sends to everyone.
const guardScript = `trap '' HUP INT TERM
groups=' '
while read -r op g; do
	case $op in
	+) groups="$groups$g " ;;
	-) case $groups in *" $g "*) groups="${groups%% $g *} ${groups#* $g }" ;; esac ;;
	esac
done
for g in $groups; do kill -s KILL -- "-$g"; done 2>/dev/null`

// startWatched starts cmd as the leader of a process group and has the guard watch
// it. Nothing comes between the two but one write, so that a child is watched
// almost as soon as it runs.
func (g *Guard) startWatched(cmd *exec.Cmd) error {
	if g == nil {
		return cmd.Start()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.startLocked()
	if err := cmd.Start(); err != nil {
		return err
	}
	g.tellLocked("+", cmd.Process.Pid)
	return nil
}

// forget tells the guard that a group has ended.
func (g *Guard) forget(pgid int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tellLocked("-", pgid)
}

func (g *Guard) tellLocked(op string, pgid int) {
	if g.to != nil {
		fmt.Fprintf(g.to, "%s %d\n", op, pgid) // a pipe: a line this short is never split
	}
}

// startLocked starts the guard's process, the first time it is called.
func (g *Guard) startLocked() {
	if g.tried {
		return
	}
	g.tried = true
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.Args[0] = "mcp-gateway-guard"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	to, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	if cmd.Start() != nil {
		return
	}
	g.cmd, g.to = cmd, to
}

// Close ends the guard, once the children are gone.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried = true
	if g.to == nil {
		return nil
	}
	g.to.Close()
	g.to = nil
	return g.cmd.Wait()
}
