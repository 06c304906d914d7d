package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// maxDelayedUpdates bounds the delayed notifications of a session or subscription.
	maxDelayedUpdates = 1024
	// maxDelayedSize bounds the size of one delayed notification, in bytes. Longer ones are
	// dropped.
	maxDelayedSize = 16 << 10
	// delayedUpdateRetry is the interval between attempts to send delayed updates.
	delayedUpdateRetry = 100 * time.Millisecond
	// backlogLogInterval is the minimum interval between two warnings of a session.
	backlogLogInterval = 10 * time.Second
)

// delayedUpdates are updates of resources, and completions of URL elicitations, that wait until the
// client is no longer backlogged. The zero value is empty.
type delayedUpdates struct {
	mu      sync.Mutex
	updates map[string]wire.Message // by method, and URI or id of the elicitation
}

// notify calls notify with the notification m, as soon as the client is not backlogged. A later
// notification about the same resource or elicitation replaces m. At a limit, further notifications
// are dropped, even if one about the same object is stored.
func (d *delayedUpdates) notify(cc *clientConn, backend string, m wire.Message,
	notify func(wire.Message)) {
	if !cc.isBacklogged(backend) {
		notify(m)
		return
	}
	if len(m.Raw()) > maxDelayedSize {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.updates == nil {
		d.updates = make(map[string]wire.Message)
		d.retryLocked(cc.backlogged, notify)
	}
	if len(d.updates) < maxDelayedUpdates {
		id := stringAt(m, "params", "uri")
		if m.Method() == protocol.NotificationElicitationComplete {
			id = stringAt(m, "params", "elicitationId")
		}
		d.updates[m.Method()+" "+id] = m
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
