package transport

import (
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"
)

// descent is a number that every process below this one has inherited, and no other process: the
// soft limit of RLIMIT_MSGQUEUE, which this process lowers by a random amount before it starts its
// first child. It is inherited by fork alone. A mark in the environment can be copied, so a process
// with a mark and another limit is not ours. It is 0 where the limit cannot be lowered.
//
// The limit is read from /proc/PID/limits, which everybody may read. Processes that use POSIX message
// queues have at least three quarters of what they had. See docs/decisions/035.
var descent = sync.OnceValue(func() uint64 {
	const usual, least = 819200, 4096 // bytes; usual is the kernel's own
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &limit) != nil {
		return 0
	}
	most := min(limit.Cur, limit.Max)
	if most > 1<<40 {
		most = usual
	}
	if most < least {
		return 0
	}
	limit.Cur = most - 1 - rand.Uint64N(most/4)
	if unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &limit) != nil {
		return 0
	}
	return limit.Cur
})

// isOurs reports whether a process with a mark descends from this one.
func (s stray) isOurs() bool {
	var limit unix.Rlimit
	err := unix.Prlimit(s.pid, unix.RLIMIT_MSGQUEUE, nil, &limit)
	return err == nil && limit.Cur == descent()
}
