package limiter

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A call is a call of these tests. It holds its slot as a value.
type call struct {
	session, name string
	cancelled     atomic.Bool
	slot          Slot
}

// A recorder submits calls to a Limiter, and records in order which are sent and which end without
// a slot, the latter with the reason.
type recorder struct {
	*Limiter[*call]
	mu     sync.Mutex
	events []string
	onSend func(*call) // nil = nothing
}

func newRecorder(maxInFlight, queueLimit int, wait time.Duration) *recorder {
	r := &recorder{}
	r.Limiter = New(Options[*call]{MaxInFlight: maxInFlight, QueueLimit: queueLimit,
		QueueWait: wait, IsCancelled: func(c *call) bool { return c.cancelled.Load() },
		Send: r.sent, Reject: r.rejected})
	return r
}

func (r *recorder) record(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) sent(c *call) {
	r.record(c.name)
	if r.onSend != nil {
		r.onSend(c)
	}
}

func (r *recorder) rejected(c *call, why error) {
	reasons := map[error]string{ErrCancelled: "cancelled", ErrNoQueue: "no queue",
		ErrQueueFull: "full", ErrExpired: "expired"}
	r.record(c.name + ": " + reasons[why])
}

// submit submits a call whose name begins with the name of its session: "a1" is of the session a.
func (r *recorder) submit(name string) *call {
	c := &call{session: name[:1], name: name}
	r.submitCall(c)
	return c
}

func (r *recorder) submitCall(c *call) {
	sendNow, err := r.Submit(c.session, c, &c.slot)
	switch {
	case err != nil:
		r.rejected(c, err)
	case sendNow:
		r.sent(c)
	}
}

func (r *recorder) end(c *call) { r.SendQueued(r.Release(&c.slot)) }

func (r *recorder) remove(c *call) bool {
	_, ok := r.Remove(c.session, func(other *call) bool { return other == c })
	return ok
}

// want checks the events since the last want.
func (r *recorder) want(t *testing.T, events string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.events, ", "); got != events {
		t.Errorf("got %q, want %q", got, events)
	}
	r.events = nil
}

func (r *recorder) wantFree(t *testing.T) {
	t.Helper()
	r.Limiter.mu.Lock()
	defer r.Limiter.mu.Unlock()
	if r.inFlight != 0 || r.queued != 0 || len(r.queues) != 0 || len(r.ring) != 0 {
		t.Errorf("%d slots in use, %d calls queued, %d queues, %d in the ring", r.inFlight,
			r.queued, len(r.queues), len(r.ring))
	}
}

func TestSessionsTakeTurns(t *testing.T) {
	r := newRecorder(2, 100, time.Hour)
	var at []*call
	r.onSend = func(c *call) { at = append(at, c) }
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1"} {
		r.submit(name)
	}
	r.want(t, "a1, a2")
	for len(at) > 0 {
		c := at[0]
		at = at[1:]
		r.end(c)
	}
	r.want(t, "a3, b1, c1, a4, b2, a5")
	r.wantFree(t)
}

func TestFullQueue(t *testing.T) {
	r := newRecorder(1, 4, time.Hour)
	first := r.submit("a0")
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5"} {
		r.submit(name)
	}
	r.want(t, "a0, a5: full")
	for _, name := range []string{"b1", "b2", "b3", "c1"} {
		r.submit(name)
	}
	// for b3, no session has more queued calls than b would have; for c1, a is the first of two
	r.want(t, "a4: full, a3: full, b3: full, a2: full")
	var last *call
	r.onSend = func(c *call) { last = c }
	r.end(first)
	for range 3 {
		r.end(last)
	}
	r.want(t, "a1, b1, c1, b2")
	r.end(last)
	r.wantFree(t)
}

func TestNoQueue(t *testing.T) {
	r := newRecorder(1, 100, 0)
	c := r.submit("a1")
	r.submit("a2")
	r.want(t, "a1, a2: no queue")
	r.end(c)
	r.submit("a3")
	r.want(t, "a3")
}

func TestQueueWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(1, 100, time.Minute)
		first := r.submit("a1")
		r.submit("a2")
		time.Sleep(time.Second)
		third := r.submit("b3")
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		r.want(t, "a1, a2: expired")
		r.end(first)
		r.want(t, "b3")
		time.Sleep(time.Hour)
		r.want(t, "")
		r.end(third)
		r.wantFree(t)
	})
}

func TestCancelledCallIsNotQueued(t *testing.T) {
	r := newRecorder(1, 100, time.Hour)
	r.submit("a1")
	c := &call{session: "a", name: "a2"}
	c.cancelled.Store(true)
	r.submitCall(c)
	r.want(t, "a1, a2: cancelled")
}

func TestRemove(t *testing.T) {
	r := newRecorder(1, 100, time.Hour)
	a1, a2, a3 := r.submit("a1"), r.submit("a2"), r.submit("a3")
	r.submit("b1")
	if !r.remove(a2) || r.remove(a2) || r.remove(a1) || r.remove(&call{session: "c"}) {
		t.Error("removed another call than the queued one")
	}
	r.end(a2) // holds no slot
	r.want(t, "a1")
	r.end(a1)
	r.end(a1) // a slot is released once
	r.want(t, "a3")
	r.end(a3)
	r.want(t, "b1")
}

func TestRemoveSession(t *testing.T) {
	r := newRecorder(1, 100, time.Hour)
	a1 := r.submit("a1")
	for _, name := range []string{"a2", "b1", "a3"} {
		r.submit(name)
	}
	if calls := r.RemoveSession("a"); len(calls) != 2 || calls[0].name != "a2" ||
		calls[1].name != "a3" {
		t.Errorf("removed %v", calls)
	}
	if calls := r.RemoveSession("a"); len(calls) != 0 {
		t.Errorf("removed %v", calls)
	}
	r.end(a1)
	r.want(t, "a1, b1")
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(1, 100, time.Minute)
		a1 := r.submit("a1")
		for _, name := range []string{"a2", "a3", "b1"} {
			r.submit(name)
		}
		var names []string
		for _, c := range r.Close() {
			names = append(names, c.name)
		}
		if want := []string{"a2", "b1", "a3"}; !slices.Equal(names, want) {
			t.Errorf("closed with %q, want %q", names, want)
		}
		late := r.submit("a4") // sent without a slot
		r.want(t, "a1, a4")
		r.end(late)
		r.end(a1)
		time.Sleep(time.Hour)
		r.want(t, "")
		r.wantFree(t)
	})
}

// Calls that end while they are sent are followed by the next ones without recursion.
func TestSendQueuedWithoutRecursion(t *testing.T) {
	r := newRecorder(1, 10_000, time.Hour)
	first, deepest, sent := r.submit("a0"), 0, 0
	r.onSend = func(c *call) {
		sent++
		deepest = max(deepest, runtime.Callers(0, make([]uintptr, 1000)))
		r.end(c)
	}
	for i := range 5000 {
		r.submit(fmt.Sprint("a", i))
	}
	r.end(first)
	if sent != 5000 || deepest > 50 {
		t.Errorf("%d calls were sent, %d frames deep", sent, deepest)
	}
	r.wantFree(t)
}

// Calls end, are removed and expire at the same moments: each call is sent once or ends once
// without a slot, the limit is never exceeded, and at the end all slots are free.
func TestRace(t *testing.T) {
	const most, calls = 4, 300
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			var inFlight, sent, failed atomic.Int64
			var l *Limiter[*call]
			send := func(c *call) {
				if inFlight.Add(1) > most {
					t.Error("too many calls in flight")
				}
				sent.Add(1)
				end := func() {
					inFlight.Add(-1)
					l.SendQueued(l.Release(&c.slot))
				}
				if c.name == "at once" {
					end()
					return
				}
				time.AfterFunc(10*time.Millisecond, end)
			}
			l = New(Options[*call]{MaxInFlight: most, QueueLimit: 100,
				QueueWait:   50 * time.Millisecond,
				IsCancelled: func(c *call) bool { return c.cancelled.Load() },
				Send:        send, Reject: func(*call, error) { failed.Add(1) }})
			dice := rand.New(rand.NewPCG(uint64(round), 0))
			for range calls {
				c := &call{session: string(rune('a' + dice.IntN(3)))}
				if dice.IntN(3) == 0 {
					c.name = "at once"
				}
				after := time.Duration(dice.IntN(10)) * 10 * time.Millisecond
				time.AfterFunc(after, func() {
					sendNow, err := l.Submit(c.session, c, &c.slot)
					if sendNow {
						send(c)
					} else if err != nil {
						failed.Add(1)
					}
				})
				if dice.IntN(4) == 0 {
					time.AfterFunc(after+10*time.Millisecond, func() {
						c.cancelled.Store(true)
						_, ok := l.Remove(c.session, func(o *call) bool { return o == c })
						if ok {
							failed.Add(1)
						}
					})
				}
			}
			time.Sleep(time.Minute)
			if n := sent.Load() + failed.Load(); n != calls || inFlight.Load() != 0 {
				t.Errorf("%d calls ended of %d, %d are in flight", n, calls, inFlight.Load())
			}
			(&recorder{Limiter: l}).wantFree(t)
		})
	}
}
