//go:build unix

package transport

import (
	"os/exec"
	"sync"
)

// A family knows which children of this process are its own: those that are
// started and waited for here. All others were left behind by one of them, or,
// where this is process 1, by anybody.
type family struct {
	mu       sync.Mutex
	ours     map[int]int // by pid, that are not waited for yet: how often
	starting int         // that may be there already, with a pid that is not known
	news     chan struct{}
}

// kin is the family of this process: an operating system knows one only.
var kin = family{ours: make(map[int]int), news: make(chan struct{}, 1)}

// start is cmd.Start for all that this process starts.
func (f *family) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	f.starting++
	f.mu.Unlock()
	err := cmd.Start()
	f.mu.Lock()
	f.starting--
	if err == nil {
		f.ours[cmd.Process.Pid]++
	}
	f.mu.Unlock()
	f.tell()
	return err
}

// wait is cmd.Wait for what start has started. How it ended is in cmd.ProcessState.
func (f *family) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	pid := cmd.Process.Pid
	f.mu.Lock()
	if f.ours[pid]--; f.ours[pid] == 0 {
		delete(f.ours, pid)
	}
	f.mu.Unlock()
	f.tell()
}

// tell has the reaper look again.
func (f *family) tell() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}
