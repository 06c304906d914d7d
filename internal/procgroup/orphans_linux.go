package procgroup

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A process is a process that has left the group of the child it comes from, and
// outlived it: a browser, or what was started with setsid.
type process struct {
	pid   int
	start uint64 // when it started, in ticks since the system did: tells it from another that gets its pid later
}

func hasOrphans(mark string) bool { return len(registry.orphans(mark, nil)) > 0 }

// killOrphans ends what carries the mark of a child that has ended: SIGTERM, and after
// grace SIGKILL. It returns when nothing is left, or what is left does not end.
func killOrphans(mark string, grace time.Duration) {
	left := registry.orphans(mark, nil)
	if len(left) == 0 {
		return
	}
	told := make(map[process]unix.Signal)
	for _, how := range []struct {
		signal unix.Signal
		within time.Duration
	}{{unix.SIGTERM, grace}, {unix.SIGKILL, time.Second}} {
		deadline := time.Now().Add(how.within)
		for pause := time.Millisecond; len(left) > 0 && time.Now().Before(deadline); pause = min(2*pause, 50*time.Millisecond) {
			for _, s := range left {
				if told[s] != how.signal { // it may be new
					told[s] = how.signal
					s.signal(how.signal)
				}
			}
			time.Sleep(pause)
			left = registry.orphans(mark, told)
		}
	}
}

// orphans finds what was left behind by a child with this mark: among what this process
// has adopted that which has the mark in its environment, and all below it, whatever
// environment that has made for itself. What is below a child of ours is that one's. Those
// known from before are looked for, too: what was above them may be gone by now.
func (f *childRegistry) orphans(mark string, known map[process]unix.Signal) []process {
	below := make(map[int][]procInfo)
	for _, p := range processes() {
		below[p.parent] = append(below[p.parent], p)
	}
	var found []process
	var walk func(p procInfo, marked bool)
	walk = func(p procInfo, marked bool) {
		marked = marked || known[p.process] != 0 || p.hasMarker(mark) && (descentLimit() == 0 || p.descendsFromUs())
		if marked && !p.zombie {
			found = append(found, p.process)
		}
		for _, c := range below[p.pid] {
			walk(c, marked)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range below[os.Getpid()] {
		if f.started[p.pid] == 0 {
			walk(p, false)
		}
	}
	return found
}

// hasMarker reports whether a process was started with this mark. That of another user's
// cannot be read, and neither could it be ended.
func (s process) hasMarker(mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/environ")
	return err == nil && bytes.Contains(env, []byte(mark))
}

func (s process) signal(sig unix.Signal) {
	if now, ok := readProc(s.pid); ok && now.process == s {
		_ = unix.Kill(s.pid, sig)
	}
}

// descentLimit is a number that every process below this one has inherited, and no other process: the
// soft limit of RLIMIT_MSGQUEUE, which this process lowers by a random amount before it starts its
// first child. It is inherited by fork alone. A mark in the environment can be copied, so a process
// with a mark and another limit is not ours. It is 0 where the limit cannot be lowered.
//
// The limit is read from /proc/PID/limits, which everybody may read. Processes that use POSIX message
// queues have at least three quarters of what they had. See docs/decisions/035-containers-shutdown-and-isolation.md.
var descentLimit = sync.OnceValue(func() uint64 {
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

// descendsFromUs reports whether a process with a mark descends from this one.
func (s process) descendsFromUs() bool {
	var limit unix.Rlimit
	err := unix.Prlimit(s.pid, unix.RLIMIT_MSGQUEUE, nil, &limit)
	return err == nil && limit.Cur == descentLimit()
}
