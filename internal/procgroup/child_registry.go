//go:build unix

package procgroup

import (
	"os/exec"
	"runtime"
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

	// forks contains one element for each cmd.Start in progress, except those that have waited for
	// forkTimeout. From the fork until the child executes its program, the runtime cannot use one
	// of its processors; this takes up to 10 ms on a busy machine. The capacity is half of the
	// processors, but at least 1: if all of them forked at once, no call would be served in this
	// time.
	forks chan struct{}
}

// registry is the childRegistry of this process.
var registry = childRegistry{started: make(map[int]int), changed: make(chan struct{}, 1),
	forks: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}

// forkTimeout is the maximum time for which a start waits for other starts: a program on a file
// system that does not respond must not prevent all others.
const forkTimeout = time.Second

// start calls cmd.Start and registers the child. Every child of this process is started by this
// method.
func (r *childRegistry) start(cmd *exec.Cmd) error {
	timer := time.NewTimer(forkTimeout)
	defer timer.Stop()
	select {
	case r.forks <- struct{}{}:
		defer func() { <-r.forks }()
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
