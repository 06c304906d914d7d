package httpserver

import (
	"fmt"
	"sync"
)

// A backlogQuota limits the unsent bytes of all connected clients together. Beyond the limit it
// disconnects the client with the largest backlog. Callers report differences, so that they need
// not hold a lock.
type backlogQuota struct {
	limit int64

	mu       sync.Mutex
	total    int64
	backlogs map[*backlog]bool // those that are not empty
}

// A backlog is the unsent bytes of one client.
type backlog struct {
	disconnect func(size int64) // called at most once, without locks; afterwards nothing is counted

	size   int64 // guarded by backlogQuota.mu, like closed
	closed bool
}

// add adds delta to a backlog. Only when the limit is exceeded does it search all backlogs.
func (o *backlogQuota) add(p *backlog, delta int) {
	if delta == 0 {
		return
	}
	for _, one := range o.update(p, int64(delta)) {
		one.disconnect(one.size)
	}
}

// update adds delta and returns the backlogs of the clients to disconnect.
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

// logDisconnect logs that a client was disconnected because of its backlog.
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
