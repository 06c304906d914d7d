package procgroup

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes this process the parent of all that its children leave behind,
// instead of process 1: so that it can be found and ended with the [Child] that it
// comes from, see [Spawn]. What it adopts it reaps, until stop is called. As process 1 it
// adopts without being asked to, and has to reap all the same.
//
// Once it is called, everything that this process starts must be started by Spawn.
func BecomeSubreaper() (stop func()) {
	adopts := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil || os.Getpid() == 1
	if !adopts {
		return func() {} // a kernel before 3.4
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

// reap reaps the dead that are not ours, and leaves ours to who waits for them:
// looking at who is dead does not reap. If a child is being started it ends there; start and
// Wait tell it to look again.
func (f *childRegistry) reap() {
	for f.reapOne() {
	}
}

func (f *childRegistry) reapOne() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	pid := anyZombie()
	if f.starting > 0 {
		return false
	}
	if f.started[pid] > 0 { // it may be long before it is waited for, if it is a holder that somebody has killed
		pid = f.unknownZombieLocked()
	}
	if pid == 0 {
		return false
	}
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err == unix.EINTR
}

// unknownZombieLocked returns the pid of a child that is dead and not ours, 0 if there is none.
func (f *childRegistry) unknownZombieLocked() int {
	for _, p := range processes() {
		if p.zombie && p.parent == os.Getpid() && f.started[p.pid] == 0 {
			return p.pid
		}
	}
	return 0
}

// anyZombie returns the pid of a child that is dead and not reaped, 0 if there is none.
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
	// si_pid is the first of what follows the three numbers that all signals have,
	// aligned for pointers.
	const three, word = 3 * unsafe.Sizeof(int32(0)), unsafe.Sizeof(uintptr(0))
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), (three+word-1)/word*word)))
}
