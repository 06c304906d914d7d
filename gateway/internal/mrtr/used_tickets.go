package mrtr

import (
	"errors"
	"sync"
	"time"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/quota"
)

// ErrAlreadyContinued is the error of a second use of a ticket.
var ErrAlreadyContinued = errors.New("another request already continues this call")

const (
	// maxReruns bounds the used tickets that have not expired; see [quota.Share]. At the limit
	// further tickets are rejected: if an older entry were removed, its ticket could be used
	// again.
	maxReruns = 20_000
)

// ErrTooManyReruns is the error at the limit of [UsedTickets].
var ErrTooManyReruns = errors.New("too many calls were sent again recently; retry later")

// UsedTickets is the table of the ids of reruns whose tickets were used. An id stays in the table
// until the tickets expire, so that all tickets of a rerun together are valid for one run. The
// zero value is empty.
type UsedTickets struct {
	counter quota.Counter[string] // by key of the principal

	mu   sync.Mutex
	used map[string]bool
}

// A RerunClaim identifies a rerun. All tickets of one call are for the same rerun.
type RerunClaim struct {
	ID        string
	Principal *principal.Principal
	Until     time.Time // latest expiry of its tickets
}

// Claim records a rerun as used. It returns nil to at most one of all callers with the same rerun,
// ErrAlreadyContinued to the others, and ErrTooManyReruns at the limit.
func (r *UsedTickets) Claim(t *RerunClaim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.used[t.ID]:
		return ErrAlreadyContinued
	case !t.Principal.AcquireShare(&r.counter, maxReruns):
		return ErrTooManyReruns
	case r.used == nil:
		r.used = make(map[string]bool)
	}
	r.used[t.ID] = true
	time.AfterFunc(time.Until(t.Until)+time.Second, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.used, t.ID)
		r.counter.Release(t.Principal.Key())
	})
	return nil
}

// IsUsed reports whether a rerun was claimed and its tickets have not expired.
func (r *UsedTickets) IsUsed(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used[id]
}
