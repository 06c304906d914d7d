package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

const (
	// maxUpdates bounds the resources of which a client is told later that they were updated.
	maxUpdates = 1024
	// missedWait is how long they wait before it is tried again.
	missedWait = 100 * time.Millisecond
	// crowdedQuiet is how long after one warning that notifications are left out there is no other.
	crowdedQuiet = 10 * time.Second
)

// isCrowded reports whether so much waits for the client that notifications have to wait or to be
// left out: a backend that sends more of them than the client reads would cost it the session, and
// with that its calls at other backends. It is logged once in a while.
func (s *Session) isCrowded(backend string) bool {
	if !s.peer.Crowded() {
		return false
	}
	s.mu.Lock()
	now := time.Now()
	tell := now.Sub(s.crowded) >= crowdedQuiet
	if tell {
		s.crowded = now
	}
	s.mu.Unlock()
	if tell {
		s.log().Warn("left out notifications: the client does not read them as fast as they come", "backend", backend)
	}
	return true
}

// updated tells the client that a resource was updated, now or, once for all updates meanwhile,
// when not too much waits for it.
func (s *Session) updated(backend string, m wire.Message) {
	if s.isCrowded(backend) {
		s.missed.add(stringAt(m, "params", "uri"), m, s.peer.Crowded, func(m wire.Message) { s.tell(m, "") })
	} else {
		s.tell(m, "")
	}
}

// missed are updates of resources that a client is told of later. The zero value has none.
type missed struct {
	mu      sync.Mutex
	updates map[string]wire.Message // by URI
}

// add has tell be called with m when crowded does not report true any longer, unless another update
// of the resource waits already.
func (x *missed) add(uri string, m wire.Message, crowded func() bool, tell func(wire.Message)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.updates == nil {
		x.updates = make(map[string]wire.Message)
		x.retryLocked(crowded, tell)
	}
	if len(x.updates) < maxUpdates {
		x.updates[uri] = m
	}
}

func (x *missed) retryLocked(crowded func() bool, tell func(wire.Message)) {
	time.AfterFunc(missedWait, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if crowded() {
			x.retryLocked(crowded, tell)
			return
		}
		for _, m := range x.updates {
			tell(m)
		}
		x.updates = nil
	})
}
