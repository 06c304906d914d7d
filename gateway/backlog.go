package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

const (
	// maxDelayedUpdates bounds the resources with a delayed update, per session or subscription.
	maxDelayedUpdates = 1024
	// delayedUpdateRetry is the interval between attempts to send delayed updates.
	delayedUpdateRetry = 100 * time.Millisecond
	// backlogLogInterval is the minimum interval between two warnings of a session.
	backlogLogInterval = 10 * time.Second
)

// delayedUpdates are resource updates that wait until the client is no longer backlogged. The
// zero value is empty.
type delayedUpdates struct {
	mu      sync.Mutex
	updates map[string]wire.Message // by URI
}

// add stores the update m of a resource, and calls notify when backlogged returns false. A later
// update replaces m. At the limit, further updates are dropped, even updates of a stored resource.
func (d *delayedUpdates) add(uri string, m wire.Message, backlogged func() bool,
	notify func(wire.Message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.updates == nil {
		d.updates = make(map[string]wire.Message)
		d.retryLocked(backlogged, notify)
	}
	if len(d.updates) < maxDelayedUpdates {
		d.updates[uri] = m
	}
}

func (d *delayedUpdates) retryLocked(backlogged func() bool, notify func(wire.Message)) {
	time.AfterFunc(delayedUpdateRetry, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if backlogged() {
			d.retryLocked(backlogged, notify)
			return
		}
		for _, m := range d.updates {
			notify(m)
		}
		d.updates = nil
	})
}
