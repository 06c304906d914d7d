//go:build unix

package procgroup

import (
	"os/exec"
	"sync"
	"time"
)

// A childRegistry records the children that this process has started and will wait for. All other
// children of this process are orphans, which this process has adopted: from a registered child or,
// if this process is process 1, from any process.
type childRegistry struct {
	mu       sync.Mutex
	started  map[int]int   // children to wait for, by pid; the value counts reuses of the pid
	starting int           // number of starts in progress, whose pid is not known yet
	changed  chan struct{} // capacity 1: wakes the reaper

	// slot (capacity 1) is held during cmd.Start. The runtime cannot use one of its processors from
	// the fork until the child executes its program, which takes up to 10 ms on a busy machine. If
	// two children were started at once on a machine with two processors, no call would be served
	// in this time.
	slot chan struct{}
}

// registry is the childRegistry of this process.
var registry = childRegistry{started: make(map[int]int), changed: make(chan struct{}, 1),
	slot: make(chan struct{}, 1)}

// slotTimeout is the maximum time for which a start waits for the slot: a program on a file
// system that does not respond must not delay all others.
const slotTimeout = time.Second

// start calls cmd.Start and registers the child. Every child of this process is started by this
// method.
func (r *childRegistry) start(cmd *exec.Cmd) error {
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
	case <-timer.C:
	}
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
