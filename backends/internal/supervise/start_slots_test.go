package supervise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestStartSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(StartSlots, 1)
		first, err := slots.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A start that hangs occupies its slot for the lease.
		began := time.Now()
		second, err := slots.Acquire(t.Context())
		if err != nil || time.Since(began) != startSlotLease {
			t.Errorf("waited %v, %v", time.Since(began), err)
		}
		first() // too late: the second start keeps its slot
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := slots.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two starts have the only slot: %v", err)
		}
		second()
		second()
		began = time.Now()
		third, err := slots.Acquire(t.Context())
		if err != nil || time.Since(began) != 0 {
			t.Errorf("waited %v for a free slot, %v", time.Since(began), err)
		}
		third()
		if len(slots) != 0 {
			t.Errorf("%d slots are occupied", len(slots))
		}
	})
}

func TestStartSlots_NoLimit(t *testing.T) {
	for range 100 {
		if _, err := StartSlots(nil).Acquire(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
