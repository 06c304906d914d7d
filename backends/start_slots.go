package backends

import (
	"context"
	"sync"
	"time"

	"mcpgateway/internal/config"
)

// startSlotLease bounds how long a start occupies a slot, so that one that hangs does not block
// others.
const startSlotLease = 2 * time.Second

// startSlots limits the number of processes that are starting; each slot is one. nil = no
// limit.
type startSlots chan struct{}

// acquire waits for a slot, in order of the calls, until ctx is done. started returns the slot,
// unless startSlotLease is over; further calls of it do nothing. Only processes need a slot.
func (s startSlots) acquire(ctx context.Context, c config.Backend) (started func(), err error) {
	if s == nil || c.Command == "" {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-s })
	timer := time.AfterFunc(startSlotLease, release)
	return func() {
		timer.Stop()
		release()
	}, nil
}
