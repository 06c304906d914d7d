package backends

import (
	"context"
	"sync"
	"time"

	"mcpgateway/internal/config"
)

// startSlotLease is for how long a start counts as being under way, at most: one that hangs must
// not hold up others.
const startSlotLease = 2 * time.Second

// startSlots bounds how many processes are being started at one time: each of its slots is one.
// nil = no bound.
type startSlots chan struct{}

// acquire waits for a place, in the order of those who ask, until ctx is done. Started gives
// it back, if it has not been so long that it was lost; calling it again does nothing. Only
// processes need one.
func (s startSlots) acquire(ctx context.Context, c config.Backend) (started func(), err error) {
	if s == nil || c.Command == "" {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	give := sync.OnceFunc(func() { <-s })
	lapse := time.AfterFunc(startSlotLease, give)
	return func() {
		lapse.Stop()
		give()
	}, nil
}
