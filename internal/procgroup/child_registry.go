//go:build unix

package procgroup

import (
	"os/exec"
	"sync"
)

// A childRegistry knows which children of this process are its own: those that are
// started and waited for here. All others were left behind by one of them, or,
// where this is process 1, by anybody.
type childRegistry struct {
	mu       sync.Mutex
	started  map[int]int // by pid, that are not waited for yet: how often
	starting int         // that may be there already, with a pid that is not known
	changed  chan struct{}
}

// registry is the family of this process: an operating system knows one only.
var registry = childRegistry{started: make(map[int]int), changed: make(chan struct{}, 1)}

// start is cmd.Start for all that this process starts.
func (f *childRegistry) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	f.starting++
	f.mu.Unlock()
	err := cmd.Start()
	f.mu.Lock()
	f.starting--
	if err == nil {
		f.started[cmd.Process.Pid]++
	}
	f.mu.Unlock()
	f.notify()
	return err
}

// Wait is cmd.Wait for what start has started. How it ended is in cmd.ProcessState.
func (f *childRegistry) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	pid := cmd.Process.Pid
	f.mu.Lock()
	if f.started[pid]--; f.started[pid] == 0 {
		delete(f.started, pid)
	}
	f.mu.Unlock()
	f.notify()
}

// notify has the reaper look again.
func (f *childRegistry) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
