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

// A processKey identifies a process even if its pid is reused.
type processKey struct {
	pid   int
	start uint64 // start time in clock ticks since boot
}

func hasOrphans(marker string) bool { return len(registry.orphans(marker, nil)) > 0 }

// killOrphans ends the orphans of an ended child: it sends SIGTERM, and SIGKILL after grace. It
// returns when the orphans have ended, or one second after SIGKILL.
func killOrphans(marker string, grace time.Duration) {
	left := registry.orphans(marker, nil)
	if len(left) == 0 {
		return
	}
	sent := make(map[processKey]unix.Signal)
	for _, step := range []struct {
		signal unix.Signal
		within time.Duration
	}{{unix.SIGTERM, grace}, {unix.SIGKILL, time.Second}} {
		deadline := time.Now().Add(step.within)
		pause := time.Millisecond
		for len(left) > 0 && time.Now().Before(deadline) {
			for _, p := range left {
				if sent[p] != step.signal { // not yet signalled in this step
					sent[p] = step.signal
					p.signal(step.signal)
				}
			}
			time.Sleep(pause)
			left = registry.orphans(marker, sent)
			pause = min(2*pause, 50*time.Millisecond)
		}
	}
}

// orphans returns the orphans of the child with this marker, except zombies. It searches the
// adopted children of this process and their descendants, but not the descendants of registered
// children. A process is an orphan if its environment contains the marker and it descends from this
// process (which is not checked if descentLimit returns 0), if it is in known (even if its
// ancestors have ended), or if one of its ancestors is an orphan.
func (r *childRegistry) orphans(marker string, known map[processKey]unix.Signal) []processKey {
	children := make(map[int][]procInfo)
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []processKey
	var walk func(p procInfo, marked bool)
	walk = func(p procInfo, marked bool) {
		marked = marked || known[p.processKey] != 0 ||
			p.hasMarker(marker) && (descentLimit() == 0 || p.descendsFromUs())
		if marked && !p.zombie {
			found = append(found, p.processKey)
		}
		for _, c := range children[p.pid] {
			walk(c, marked)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range children[os.Getpid()] {
		if r.started[p.pid] == 0 {
			walk(p, false)
		}
	}
	return found
}

// hasMarker reports whether the process was started with this marker. It returns false for a
// process of another user: its environment is not readable, and it could not be killed either.
func (p processKey) hasMarker(marker string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	return err == nil && bytes.Contains(env, []byte(marker))
}

// signal sends sig to the process, unless its pid was reused.
func (p processKey) signal(sig unix.Signal) {
	if now, ok := readProc(p.pid); ok && now.processKey == p {
		_ = unix.Kill(p.pid, sig)
	}
}

// descentLimit returns a number that all descendants of this process, and no other processes, have
// inherited: the soft limit of RLIMIT_MSGQUEUE, which this process lowers by a random amount before
// it starts its first child. The limit is inherited only by fork. A marker in the environment can
// be copied, so a process with the marker but another limit is not a descendant. descentLimit
// returns 0 if the limit cannot be lowered.
//
// The watchdog reads the limit from /proc/PID/limits, which is readable for all users. Processes
// that use POSIX message queues keep at least three quarters of their limit or, if they had none,
// of the default of the kernel. See docs/decisions/035-containers-shutdown-and-isolation.md.
var descentLimit = sync.OnceValue(func() uint64 {
	const usual, least = 819200, 4096 // bytes; usual is the default of the kernel
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

// descendsFromUs reports whether a process with the marker descends from this process.
func (p processKey) descendsFromUs() bool {
	var limit unix.Rlimit
	err := unix.Prlimit(p.pid, unix.RLIMIT_MSGQUEUE, nil, &limit)
	return err == nil && limit.Cur == descentLimit()
}
