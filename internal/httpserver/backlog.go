package httpserver

import (
	"fmt"
	"sync"
)

// An backlogQuota counts what waits for all clients that are connected. When that is too much it
// hangs up on who has left most unread, and on nobody else. It counts by differences, so
// that who notes one need not hold a lock.
type backlogQuota struct {
	limit int64

	mu       sync.Mutex
	total    int64
	backlogs map[*backlog]bool // those in which something waits
}

// A backlog is what waits for one client.
type backlog struct {
	disconnect func(size int64) // called once at most, without locks; nothing is counted from then on

	size   int64 // guarded by outbox.mu, as is over
	closed bool
}

// add notes that delta bytes more wait in a pile. To find who has most takes a look at all
// of them, and is done only when there is too much.
func (o *backlogQuota) add(p *backlog, delta int) {
	if delta == 0 {
		return
	}
	for _, one := range o.update(p, int64(delta)) {
		one.disconnect(one.size)
	}
}

// update returns those on whom to hang up.
func (o *backlogQuota) update(p *backlog, delta int64) (tooMuch []*backlog) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.closed {
		return nil
	}
	p.size += delta
	o.total += delta
	if o.backlogs == nil {
		o.backlogs = make(map[*backlog]bool)
	}
	if o.backlogs[p] = true; p.size == 0 {
		delete(o.backlogs, p)
	}
	for o.total > o.limit && len(o.backlogs) > 0 {
		tooMuch = append(tooMuch, o.dropLargestLocked())
	}
	return tooMuch
}

// logDisconnect names a client in the log that was hung up on since it has left most unread.
func (srv *Server) logDisconnect(session string, size int64) {
	srv.log.Warn("hung up: more than may waits for all clients, and most for this one, which does not read", "session", session,
		"max", srv.opts.BacklogLimit, "err", fmt.Sprintf("%d bytes are unread", size))
}

func (o *backlogQuota) dropLargestLocked() (largest *backlog) {
	for one := range o.backlogs {
		if largest == nil || one.size > largest.size {
			largest = one
		}
	}
	largest.closed = true
	o.total -= largest.size
	delete(o.backlogs, largest)
	return largest
}
