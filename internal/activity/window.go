package activity

import "time"

// retention is the time for which the series of a window has points.
const retention = 24 * time.Hour

// A Point is one entry of a series: the calls that ended in a period of time. Periods without calls
// have no point.
type Point struct {
	Start         time.Time
	Calls, Errors uint32
	P50, P99      time.Duration // of the calls that were sent; 0 = none was
}

// A window counts the calls of the current period, and keeps the points of earlier periods and the
// durations of the last hour.
type window struct {
	width  time.Duration // of a period; a divisor of an hour
	slot   int64         // number of the current period since 1970
	calls  uint32
	errors uint32

	durations Histogram // of the current period
	closed    []period  // of the last hour, oldest first, without empty periods
	points    []packedPoint
}

// A period has the durations of the calls that ended in one period.
type period struct {
	slot      int64
	durations Histogram
}

// A packedPoint is a Point with times in microseconds.
type packedPoint struct {
	slot          int64
	calls, errors uint32
	p50, p99      uint32
}

// add counts a call that ended at the time now. sent is false if it has no duration.
func (w *window) add(now time.Time, failed, sent bool, dur time.Duration) {
	w.advance(now)
	w.calls++
	if failed {
		w.errors++
	}
	if sent {
		w.durations.Add(microseconds(dur))
	}
}

// advance begins the period of now, unless it is the current one, and removes what is too old.
func (w *window) advance(now time.Time) {
	slot := now.UnixNano() / int64(w.width)
	if slot <= w.slot { // the same period, or the clock was set back
		return
	}
	if w.calls > 0 {
		w.points = append(w.points, w.current())
	}
	if w.durations.Count > 0 {
		w.closed = append(w.closed, period{w.slot, w.durations})
		w.durations = Histogram{}
	}
	w.slot, w.calls, w.errors = slot, 0, 0
	w.closed = dropOld(w.closed, func(p period) bool {
		return p.slot <= slot-int64(time.Hour/w.width)
	})
	w.points = dropOld(w.points, func(p packedPoint) bool {
		return p.slot <= slot-int64(retention/w.width)
	})
}

// dropOld removes the entries at the beginning that are old, in place.
func dropOld[T any](all []T, isOld func(T) bool) []T {
	n := 0
	for n < len(all) && isOld(all[n]) {
		n++
	}
	if n == 0 {
		return all
	}
	kept := copy(all, all[n:])
	clear(all[kept:])
	return all[:kept]
}

// current returns the point of the current period.
func (w *window) current() packedPoint {
	return packedPoint{w.slot, w.calls, w.errors,
		uint32(min(w.durations.Quantile(0.5), 1<<32-1)),
		uint32(min(w.durations.Quantile(0.99), 1<<32-1))}
}

// series returns the points of the last 24 hours, the current period included.
func (w *window) series(now time.Time) []Point {
	w.advance(now)
	packed := w.points
	if w.calls > 0 {
		packed = append(packed[:len(packed):len(packed)], w.current())
	}
	all := make([]Point, 0, len(packed))
	for _, p := range packed {
		all = append(all, Point{
			Start: time.Unix(0, p.slot*int64(w.width)), Calls: p.calls, Errors: p.errors,
			P50: time.Duration(p.p50) * time.Microsecond,
			P99: time.Duration(p.p99) * time.Microsecond,
		})
	}
	return all
}

// lastHour returns the durations of the current period and of those that began in the hour before.
func (w *window) lastHour(now time.Time) Histogram {
	w.advance(now)
	all := w.durations.clone()
	for i := range w.closed {
		all.merge(&w.closed[i].durations)
	}
	return all
}

func microseconds(d time.Duration) uint64 { return uint64(max(d.Microseconds(), 0)) }
