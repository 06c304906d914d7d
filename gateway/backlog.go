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

// notify calls notify with the update m of a resource, as soon as the client is not backlogged. A
// later update replaces m. At the limit, further updates are dropped, even updates of a stored
// resource.
func (d *delayedUpdates) notify(cc *clientConn, backend string, m wire.Message,
	notify func(wire.Message)) {
	if !cc.isBacklogged(backend) {
		notify(m)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.updates == nil {
		d.updates = make(map[string]wire.Message)
		d.retryLocked(cc.backlogged, notify)
	}
	if len(d.updates) < maxDelayedUpdates {
		d.updates[stringAt(m, "params", "uri")] = m
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
