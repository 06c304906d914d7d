package httpserver

import (
	"fmt"
	"log/slog"
	"sync"
)

// A backlogQuota limits the unsent bytes of all connected clients together. When the limit is
// exceeded, it disconnects the client with the largest backlog, and further clients until the limit
// is met. Callers add differences instead of sizes. The order of differences does not matter, so
// that callers need not hold a lock during add.
type backlogQuota struct {
	limit int64
	log   *slog.Logger

	mu       sync.Mutex
	total    int64
	backlogs map[*backlog]bool // backlogs that are not empty
}

// A backlog counts the unsent bytes of one client.
type backlog struct {
	disconnect func(size int64) // called at most once, without locks held
	client     SessionInfo      // in logs

	reported reportedSize

	size   int64 // guarded by backlogQuota.mu, like closed
	closed bool  // set before disconnect is called; then nothing is counted
}

// A reportedSize is a size that was passed to a quota as differences. The owner of the counted data
// guards it.
type reportedSize int

// change returns the difference between size and the size at the last call, which the caller must
// pass to the quota.
func (r *reportedSize) change(size int) int {
	delta := size - int(*r)
	*r = reportedSize(size)
	return delta
}

// add adds delta to a backlog. If the limit is then exceeded, it searches all backlogs and
// disconnects clients.
func (q *backlogQuota) add(b *backlog, delta int) {
	if delta == 0 {
		return
	}
	for _, excess := range q.update(b, int64(delta)) {
		excess.client.logger(q.log).Warn(
			"closed the slowest client, unread data above limits.outbox", "max", q.limit,
			"err", fmt.Sprintf("%d bytes are unread", excess.size))
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
