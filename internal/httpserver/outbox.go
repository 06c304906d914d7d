package httpserver

import (
	"fmt"
	"sync"
)

// An outbox counts what waits for all clients that are connected. When that is too much it
// hangs up on who has left most unread, and on nobody else. It counts by differences, so
// that who notes one need not hold a lock.
type outbox struct {
	most int64

	mu    sync.Mutex
	total int64
	piles map[*pile]bool // those in which something waits
}

// A pile is what waits for one client.
type pile struct {
	hangUp func(size int64) // called once at most, without locks; nothing is counted from then on

	size int64 // guarded by outbox.mu, as is over
	over bool
}

// add notes that delta bytes more wait in a pile. To find who has most takes a look at all
// of them, and is done only when there is too much.
func (o *outbox) add(p *pile, delta int) {
	if delta == 0 {
		return
	}
	for _, one := range o.count(p, int64(delta)) {
		one.hangUp(one.size)
	}
}

// count returns those on whom to hang up.
func (o *outbox) count(p *pile, delta int64) (tooMuch []*pile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.over {
		return nil
	}
	p.size += delta
	o.total += delta
	if o.piles == nil {
		o.piles = make(map[*pile]bool)
	}
	if o.piles[p] = true; p.size == 0 {
		delete(o.piles, p)
	}
	for o.total > o.most && len(o.piles) > 0 {
		tooMuch = append(tooMuch, o.dropLargestLocked())
	}
	return tooMuch
}

// tellHangUp names a client in the log that was hung up on since it has left most unread.
func (d *Server) tellHangUp(session string, size int64) {
	d.log.Warn("hung up: more than may waits for all clients, and most for this one, which does not read", "session", session,
		"max", d.o.BacklogLimit, "err", fmt.Sprintf("%d bytes are unread", size))
}

func (o *outbox) dropLargestLocked() (largest *pile) {
	for one := range o.piles {
		if largest == nil || one.size > largest.size {
			largest = one
		}
	}
	largest.over = true
	o.total -= largest.size
	delete(o.piles, largest)
	return largest
}
