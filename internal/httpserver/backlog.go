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
func (q *backlogQuota) add(b *backlog, delta int) {
	if delta == 0 {
		return
	}
	for _, excess := range q.update(b, int64(delta)) {
		excess.disconnect(excess.size)
	}
}

// update adds delta and returns the backlogs of the clients to disconnect.
func (q *backlogQuota) update(b *backlog, delta int64) (excess []*backlog) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.closed {
		return nil
	}
	b.size += delta
	q.total += delta
	if q.backlogs == nil {
		q.backlogs = make(map[*backlog]bool)
	}
	if q.backlogs[b] = true; b.size == 0 {
		delete(q.backlogs, b)
	}
	for q.total > q.limit && len(q.backlogs) > 0 {
		excess = append(excess, q.dropLargestLocked())
	}
	return excess
}

// logDisconnect logs that a client was disconnected because of its backlog.
func (srv *Server) logDisconnect(logID string, size int64) {
	srv.log.Warn("closed the slowest client: unread data for all clients exceeds limits.outbox",
		"session", logID, "max", srv.opts.BacklogLimit,
		"err", fmt.Sprintf("%d bytes are unread", size))
}

func (q *backlogQuota) dropLargestLocked() (largest *backlog) {
	for b := range q.backlogs {
		if largest == nil || b.size > largest.size {
			largest = b
		}
	}
	largest.closed = true
	q.total -= largest.size
	delete(q.backlogs, largest)
	return largest
}
