package gateway

import (
	"maps"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/quota"
	"mcpgateway/internal/wire"
)

const (
	// maxDelayedUpdates bounds the notifications in one heldNotifications, maxDelayedBytes their
	// bytes, and maxAllDelayedBytes the bytes in all heldNotifications.
	maxDelayedUpdates  = 1024
	maxDelayedBytes    = 1 << 20
	maxAllDelayedBytes = 64 << 20
	// delayedUpdateRetry is the interval between attempts to send delayed updates.
	delayedUpdateRetry = 100 * time.Millisecond
	// backlogLogInterval is the minimum interval between two warnings of a session.
	backlogLogInterval = 10 * time.Second
)

// heldNotifications are updates of resources, and completions of URL elicitations, that cannot be
// sent yet: the latest notification about each object. A lock of the owner guards it. The zero
// value is empty. Total counts the bytes in all heldNotifications.
type heldNotifications struct {
	byObject map[string]wire.Message // by method, and URI or id of the elicitation
	size     int                     // in bytes
}

// put stores the notification m, in place of an earlier one about the same object. If a limit would
// be exceeded, it drops m; the earlier notification stays.
func (h *heldNotifications) put(m wire.Message, total *quota.Bytes) {
	id := updatedURI(m)
	if m.Method() == protocol.NotificationElicitationComplete {
		id = stringAt(m, "params", "elicitationId")
	}
	key := m.Method() + " " + id
	earlier, replaces := h.byObject[key]
	n := len(m.Raw()) - len(earlier.Raw())
	if !replaces && len(h.byObject) >= maxDelayedUpdates || h.size+n > maxDelayedBytes ||
		!total.Acquire(n, maxAllDelayedBytes) {
		return
	}
	if h.byObject == nil {
		h.byObject = make(map[string]wire.Message)
	}
	h.byObject[key] = m.Clone() // the text of m may be a part of a longer one
	h.size += n
}

// takeAll removes and returns the notifications, in a fixed order. It must be called in the end.
func (h *heldNotifications) takeAll(total *quota.Bytes) (all []wire.Message) {
	for _, key := range slices.Sorted(maps.Keys(h.byObject)) {
		all = append(all, h.byObject[key])
	}
	total.Release(h.size)
	h.byObject, h.size = nil, 0
	return all
}

// delayedUpdates are notifications that wait until the client is no longer backlogged. The zero
// value is empty.
type delayedUpdates struct {
	mu   sync.Mutex
	held heldNotifications
}

// notify calls notify with the notification m, as soon as the client is not backlogged. A later
// notification about the same resource or elicitation replaces m. At a limit, m is dropped.
func (d *delayedUpdates) notify(cc *clientConn, backend string, m wire.Message,
	notify func(wire.Message)) {
	if !cc.isBacklogged(backend) {
		notify(m)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := len(d.held.byObject) > 0
	d.held.put(m, &cc.g.heldBytes)
	if !waiting && len(d.held.byObject) > 0 {
		d.retryLocked(cc, notify)
	}
}

func (d *delayedUpdates) retryLocked(cc *clientConn, notify func(wire.Message)) {
	time.AfterFunc(delayedUpdateRetry, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if cc.backlogged() {
			d.retryLocked(cc, notify)
			return
		}
		for _, m := range d.held.takeAll(&cc.g.heldBytes) {
			notify(m)
		}
	})
}
