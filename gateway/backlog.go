package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

const (
	// maxDelayedUpdates bounds the resources of which a client is told later that they were updated.
	maxDelayedUpdates = 1024
	// delayedUpdateRetry is how long they wait before it is tried again.
	delayedUpdateRetry = 100 * time.Millisecond
	// backlogLogInterval is how long after one warning that notifications are left out there is no other.
	backlogLogInterval = 10 * time.Second
)

// isBacklogged reports whether so much waits for the client that notifications have to wait or to be
// left out: a backend that sends more of them than the client reads would cost it the session, and
// with that its calls at other backends. It is logged once in a while.
func (s *Session) isBacklogged(backend string) bool {
	if !s.peer.Backlogged() {
		return false
	}
	s.mu.Lock()
	now := time.Now()
	logNow := now.Sub(s.backlogLogged) >= backlogLogInterval
	if logNow {
		s.backlogLogged = now
	}
	s.mu.Unlock()
	if logNow {
		s.log().Warn("left out notifications: the client does not read them as fast as they come", "backend", backend)
	}
	return true
}

// notifyUpdated tells the client that a resource was updated, now or, once for all updates meanwhile,
// when not too much waits for it.
func (s *Session) notifyUpdated(backend string, m wire.Message) {
	if s.isBacklogged(backend) {
		s.delayedUpdates.add(stringAt(m, "params", "uri"), m, s.peer.Backlogged, func(m wire.Message) { s.notify(m, "") })
	} else {
		s.notify(m, "")
	}
}

// delayedUpdates are updates of resources that a client is told of later. The zero value has none.
type delayedUpdates struct {
	mu      sync.Mutex
	updates map[string]wire.Message // by URI
}

// add has tell be called with m when crowded does not report true any longer, unless another update
// of the resource waits already.
func (d *delayedUpdates) add(uri string, m wire.Message, backlogged func() bool, notify func(wire.Message)) {
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
