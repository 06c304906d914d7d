package supervise

import (
	"context"
	"sync"
	"time"
)

// startSlotLease bounds how long a start occupies a start slot, so that a start that hangs does
// not block others.
const startSlotLease = 2 * time.Second

// StartSlots limits the number of processes that are starting. Each element of the channel is an
// occupied start slot. nil = no limit.
type StartSlots chan struct{}

// Acquire waits for a start slot, in order of the calls. If ctx is done first, it returns
// ctx.Err(). started releases the start slot, unless startSlotLease is over; further calls of
// started do nothing.
func (s StartSlots) Acquire(ctx context.Context) (started func(), err error) {
	if s == nil {
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
