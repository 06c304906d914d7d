package transport

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A stray is a process that has left the group of the child it comes from, and
// outlived it: a browser, or what was started with setsid.
type stray struct {
	pid   int
	start uint64 // when it started, in ticks since the system did: tells it from another that gets its pid later
}

func hasStrays(mark string) bool { return len(kin.strays(mark, nil)) > 0 }

// stopStrays ends what carries the mark of a child that has ended: SIGTERM, and after
// grace SIGKILL. It returns when nothing is left, or what is left does not end.
func stopStrays(mark string, grace time.Duration) {
	left := kin.strays(mark, nil)
	if len(left) == 0 {
		return
	}
	told := make(map[stray]unix.Signal)
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
			left = kin.strays(mark, told)
		}
	}
}

// strays finds what was left behind by a child with this mark: among what this process
// has adopted that which has the mark in its environment, and all below it, whatever
// environment that has made for itself. What is below a child of ours is that one's. Those
// known from before are looked for, too: what was above them may be gone by now.
func (f *family) strays(mark string, known map[stray]unix.Signal) []stray {
	below := make(map[int][]seen)
	for _, p := range processes() {
		below[p.parent] = append(below[p.parent], p)
	}
	var found []stray
	var walk func(p seen, marked bool)
	walk = func(p seen, marked bool) {
		marked = marked || known[p.stray] != 0 || p.has(mark) && (descent() == 0 || p.isOurs())
		if marked && !p.dead {
			found = append(found, p.stray)
		}
		for _, c := range below[p.pid] {
			walk(c, marked)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range below[os.Getpid()] {
		if f.ours[p.pid] == 0 {
			walk(p, false)
		}
	}
	return found
}

// has reports whether a process was started with this mark. That of another user's
// cannot be read, and neither could it be ended.
func (s stray) has(mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/environ")
	return err == nil && bytes.Contains(env, []byte(mark))
}

func (s stray) signal(sig unix.Signal) {
	if now, ok := look(s.pid); ok && now.stray == s {
		_ = unix.Kill(s.pid, sig)
	}
}
