package procgroup

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes this process, instead of process 1, the parent of the orphans of its
// children, so that they can be found and ended together with the child; see [Group]. It reaps the
// orphans that end, until stop is called. If this process is process 1, it is the parent of orphans
// anyway, and must reap them. Where neither is the case, before Linux 3.4, BecomeSubreaper does
// nothing.
//
// Once BecomeSubreaper is called, this process must start all its children with [Start].
func BecomeSubreaper() (stop func()) {
	isParent := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil || os.Getpid() == 1
	if !isParent {
		return func() {} // Linux before 3.4
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	done := make(chan struct{})
	var reaper sync.WaitGroup
	reaper.Go(func() {
		for {
			registry.reap()
			select {
			case <-ended:
			case <-registry.changed:
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(ended)
		close(done)
		reaper.Wait()
	}
}

// reap reaps the zombies that are not registered; wait reaps registered children. It does nothing
// while a child is being started: start and wait notify the reaper when they have finished.
func (r *childRegistry) reap() {
	for r.reapOne() {
	}
}

// reapOne reaps one zombie, and reports whether there may be further zombies.
func (r *childRegistry) reapOne() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid := anyZombie()
	if r.starting > 0 {
		return false
	}
	if r.started[pid] > 0 { // some stay zombies for a long time: a watchdog that a user killed
		pid = r.unknownZombieLocked()
	}
	if pid == 0 {
		return false
	}
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err == unix.EINTR
}

// unknownZombieLocked returns the pid of a zombie that is not registered; 0 = none.
func (r *childRegistry) unknownZombieLocked() int {
	for _, p := range processes() {
		if p.zombie && p.parent == os.Getpid() && r.started[p.pid] == 0 {
			return p.pid
		}
	}
	return 0
}

// anyZombie returns the pid of a zombie child without reaping the child; 0 = none.
func anyZombie() int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return 0
		}
	}
	// si_pid follows the three numbers that are common to all signals, and is aligned for pointers.
	const three, word = 3 * unsafe.Sizeof(int32(0)), unsafe.Sizeof(uintptr(0))
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), (three+word-1)/word*word)))
}
