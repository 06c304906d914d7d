package logging

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// maxRing bounds the lines of a Ring in bytes, and maxRingBackend those of one backend.
	maxRing        = 4 << 20
	maxRingBackend = 256 << 10
	// maxRingText bounds the message and the attributes of a line, each in bytes.
	maxRingText = 8 << 10
	// ringLineSize is the size of a line without its texts.
	ringLineSize = 128
)

// A LogLine is a log record in a Ring. Its texts are masked.
type LogLine struct {
	Seq     uint64 // number of the line in the Ring, ascending from 1
	Time    time.Time
	Level   slog.Level
	Backend string // "" = the gateway, or several backends
	Message string // a line that a backend has written to stderr begins with "stderr: "
	Attrs   string // further attributes as text, such as `session=1 err="no such file"`; "" = none
}

// A LineFilter selects lines of a Ring. The zero value selects all of them.
type LineFilter struct {
	Backends []string  // "" = the gateway; nil = all
	After    uint64    // only lines with a greater Seq
	From, To time.Time // only lines of this time; zero = no limit
	Last     int       // only so many of the selected lines, the latest ones; 0 = no limit
}

func (f *LineFilter) matches(l *LogLine) bool {
	return l.Seq > f.After && (f.Backends == nil || slices.Contains(f.Backends, l.Backend)) &&
		(f.From.IsZero() || !l.Time.Before(f.From)) && (f.To.IsZero() || !l.Time.After(f.To))
}

// A Ring keeps the latest lines of the log in memory. Of each backend, and of the gateway itself,
// it keeps the latest 256 KiB, in total 4 MiB; beyond that, those lose their oldest lines that have
// the most. So a backend that writes much removes only its own lines. The zero value is empty and
// ready for use; it allocates memory for lines only. All methods may be called concurrently.
type Ring struct {
	encoding sync.Mutex // held while a record is encoded into buffer
	buffer   bytes.Buffer

	mu        sync.Mutex
	seq       uint64 // of the latest line
	size      int    // of all lines
	byBackend map[string]*ringQueue
	followers []*LogFollower
}

// A ringQueue contains the lines of one backend, the oldest first.
type ringQueue struct {
	lines []LogLine
	size  int
}

func (l *LogLine) size() int {
	return ringLineSize + len(l.Message) + len(l.Attrs) + len(l.Backend)
}

// add adds a line, and sets its Seq.
func (r *Ring) add(l LogLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	l.Seq = r.seq
	if r.byBackend == nil {
		r.byBackend = make(map[string]*ringQueue)
	}
	q := r.byBackend[l.Backend]
	if q == nil {
		q = new(ringQueue)
		r.byBackend[l.Backend] = q
	}
	q.lines = append(q.lines, l)
	q.size += l.size()
	r.size += l.size()
	for q.size > maxRingBackend {
		r.removeOldestLocked(q)
	}
	for r.size > maxRing {
		r.removeOldestLocked(r.largestLocked())
	}
	for _, f := range r.followers {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

func (r *Ring) largestLocked() (largest *ringQueue) {
	for _, q := range r.byBackend {
		if largest == nil || q.size > largest.size {
			largest = q
		}
	}
	return largest
}

func (r *Ring) removeOldestLocked(q *ringQueue) {
	l := q.lines[0]
	q.lines[0] = LogLine{} // append copies the rest when the array is full
	q.lines = q.lines[1:]
	q.size -= l.size()
	r.size -= l.size()
	for _, f := range r.followers {
		if f.filter.matches(&l) {
			f.lost++
		}
	}
	if len(q.lines) == 0 {
		delete(r.byBackend, l.Backend)
	}
}

// Lines returns the lines that a filter selects, the oldest first. The caller owns the result.
func (r *Ring) Lines(f LineFilter) []LogLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.linesLocked(&f)
}

func (r *Ring) linesLocked(f *LineFilter) (all []LogLine) {
	for _, q := range r.byBackend {
		first := sort.Search(len(q.lines), func(i int) bool { return q.lines[i].Seq > f.After })
		for i := range q.lines[first:] {
			if l := &q.lines[first+i]; f.matches(l) {
				all = append(all, *l)
			}
		}
	}
	slices.SortFunc(all, func(a, b LogLine) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	if f.Last > 0 && len(all) > f.Last {
		all = all[len(all)-f.Last:]
	}
	return all
}

// A LogFollower reads the lines of a Ring as they arrive. One goroutine at a time may use it.
type LogFollower struct {
	ring *Ring
	wake chan struct{} // capacity 1: there are lines

	// Guarded by ring.mu:
	filter LineFilter
	lost   int // number of lines that were removed before they were read
}

// Follow returns a LogFollower of the lines that a filter selects, which begins with those that are
// in the Ring. The caller must close it.
func (r *Ring) Follow(f LineFilter) *LogFollower {
	lf := &LogFollower{ring: r, wake: make(chan struct{}, 1), filter: f}
	lf.wake <- struct{}{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followers = append(r.followers, lf)
	return lf
}

// Next waits for lines, and returns those that have arrived since the preceding call of Next, and
// the number of lines that were lost in front of them, because the Ring had no more room for them.
// If ctx is done first, it returns the error of ctx.
func (lf *LogFollower) Next(ctx context.Context) (lines []LogLine, lost int, err error) {
	for {
		select {
		case <-lf.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		if lines, lost = lf.take(); len(lines) > 0 || lost > 0 {
			return lines, lost, nil
		}
	}
}

func (lf *LogFollower) take() (lines []LogLine, lost int) {
	r := lf.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, lost = r.linesLocked(&lf.filter), lf.lost
	lf.filter.After, lf.filter.Last, lf.lost = r.seq, 0, 0
	return lines, lost
}

// Close ends the LogFollower.
func (lf *LogFollower) Close() {
	lf.ring.mu.Lock()
	defer lf.ring.mu.Unlock()
	lf.ring.followers = slices.DeleteFunc(lf.ring.followers,
		func(one *LogFollower) bool { return one == lf })
}
