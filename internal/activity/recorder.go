// Package activity knows what the gateway does now and has done in the last 24 hours: counters by
// backend and tool, the calls in flight, the last calls, and a series for plots. It is the only
// source of these figures for the admin API and for metrics.
//
// Everything is in memory, is bounded (docs/limits.md), and is allocated when there are calls. Each
// call costs well below 0.5 µs. Texts are truncated copies; no message is retained.
//
// Recorder.mu is innermost: no other lock is taken while it is held.
package activity

import (
	"slices"
	"sync"
	"time"

	"mcpgateway/gateway"
)

// Bounds of what a Recorder stores.
const (
	maxRecent   = 1000 // ended calls
	maxFree     = 64   // memory of ended calls that waits to be used again
	maxBackends = 200  // backends with counters of their own
	maxEntries  = 500  // tools and prompts with counters of their own
)

// Other is the name under which the calls of further backends, tools and prompts are counted when
// the maximum number of them have counters of their own.
const Other = "other"

// A Recorder observes all calls of a gateway. It implements gateway.Observer. Create it with New.
type Recorder struct {
	mu       sync.Mutex
	inFlight map[uint64]*storedCall
	recent   []*storedCall // ring of ended calls
	next     int           // index in recent of the oldest record, when the ring is full
	free     []*storedCall
	counters counterTable
	readers  []*Subscription
}

// New returns a Recorder without calls.
func New() *Recorder {
	r := &Recorder{inFlight: make(map[uint64]*storedCall)}
	r.counters.total.window.width = totalPeriod
	return r
}

// Begin implements gateway.Observer.
func (r *Recorder) Begin(c *gateway.CallInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var call *storedCall
	if n := len(r.free); n > 0 {
		call, r.free = r.free[n-1], r.free[:n-1]
	} else {
		call = new(storedCall)
	}
	call.begin(c)
	r.inFlight[c.Seq] = call
}

// Routed implements gateway.Observer.
func (r *Recorder) Routed(c *gateway.CallInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call := r.inFlight[c.Seq]; call != nil {
		call.setRoute(c)
		r.publish(call)
	}
}

// End implements gateway.Observer.
func (r *Recorder) End(c *gateway.CallInfo, o gateway.Outcome) {
	ended := c.Started.Add(o.Queued + o.Dur)
	r.mu.Lock()
	defer r.mu.Unlock()
	call := r.inFlight[c.Seq]
	if call == nil {
		return
	}
	delete(r.inFlight, c.Seq)
	call.end(c, &o)
	r.counters.add(&call.CallRecord, ended, !c.Sent.IsZero())
	r.publish(call)
	if len(r.recent) < maxRecent {
		r.recent = append(r.recent, call)
		return
	}
	oldest := r.recent[r.next]
	r.recent[r.next] = call
	r.next = (r.next + 1) % maxRecent
	if len(r.free) < maxFree {
		r.free = append(r.free, oldest)
	}
}

// InFlight returns the calls that have not ended, oldest first.
func (r *Recorder) InFlight() []CallRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]CallRecord, 0, len(r.inFlight))
	for _, call := range r.inFlight {
		all = append(all, call.copy())
	}
	slices.SortFunc(all, func(a, b CallRecord) int { return a.Started.Compare(b.Started) })
	return all
}

// Recent returns the last ended calls that match, the latest first, at most limit.
func (r *Recorder) Recent(limit int, match func(*CallRecord) bool) (all []CallRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.recent) - 1; i >= 0 && len(all) < limit; i-- {
		call := r.recent[(r.next+i)%len(r.recent)]
		if match(&call.CallRecord) {
			all = append(all, call.copy())
		}
	}
	return all
}

// Find returns a call in flight or one of the last ended calls, by its number.
func (r *Recorder) Find(seq uint64) (CallRecord, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call := r.inFlight[seq]; call != nil {
		return call.copy(), true
	}
	for _, call := range r.recent {
		if call.Seq == seq {
			return call.copy(), true
		}
	}
	return CallRecord{}, false
}

// InFlightCounts returns the number of calls in flight by backend and by session. A call whose
// backend is not known yet counts for the backend "".
func (r *Recorder) InFlightCounts() (byBackend, bySession map[string]int) {
	byBackend, bySession = make(map[string]int), make(map[string]int)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.inFlight {
		byBackend[call.Backend]++
		bySession[call.Session]++
	}
	return byBackend, bySession
}

// Total returns the counters of all calls.
func (r *Recorder) Total() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counters.total.snapshot(time.Now())
}

// Backends returns the counters by backend. "" are calls that were not routed.
func (r *Recorder) Backends() map[string]Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]Counters, len(r.counters.backends))
	for name, c := range r.counters.backends {
		all[name] = c.snapshot(time.Now())
	}
	return all
}

// Series returns the series of all calls, with a period of a minute, and those of the backends,
// with a period of ten minutes.
func (r *Recorder) Series() (total []Point, byBackend map[string][]Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	byBackend = make(map[string][]Point, len(r.counters.backends))
	for name, c := range r.counters.backends {
		byBackend[name] = c.window.series(now)
	}
	return r.counters.total.window.series(now), byBackend
}

// Entries returns the counters by tool and prompt.
func (r *Recorder) Entries() map[EntryKey]EntryCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[EntryKey]EntryCounters, len(r.counters.entries))
	for key, e := range r.counters.entries {
		all[key] = EntryCounters{e.ByOutcome, e.Durations.clone(), e.BytesIn.clone(),
			e.BytesOut.clone()}
	}
	return all
}
