//go:build unix

package procgroup

import (
	"os/exec"
	"sync"
)

// A childRegistry knows which children of this process were started here and will be waited for
// here. All other children are orphans, adopted from one of those or, if this is process 1, from
// anywhere.
type childRegistry struct {
	mu       sync.Mutex
	started  map[int]int   // started and not waited for, by pid; the value counts reuses of the pid
	starting int           // starts in progress, whose pid is not known yet
	changed  chan struct{} // 1 slot: wakes the reaper
}

// registry is the childRegistry of this process.
var registry = childRegistry{started: make(map[int]int), changed: make(chan struct{}, 1)}

// start calls cmd.Start and registers the child. Every child of this process is started by it.
func (r *childRegistry) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()
	err := cmd.Start()
	r.mu.Lock()
	r.starting--
	if err == nil {
		r.started[cmd.Process.Pid]++
	}
	r.mu.Unlock()
	r.notify()
	return err
}

// wait calls cmd.Wait for a child that start has started. The exit status is in cmd.ProcessState.
func (r *childRegistry) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	pid := cmd.Process.Pid
	r.mu.Lock()
	if r.started[pid]--; r.started[pid] == 0 {
		delete(r.started, pid)
	}
	r.mu.Unlock()
	r.notify()
}

// notify wakes the reaper.
func (r *childRegistry) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}
