// Package gctune adapts GOGC to the load.
//
// The heap of a gateway is small, and each call leaves some garbage. With GOGC=100 the collector
// would run dozens of times per second under load and use a fifth of the processor time. Under load
// this package therefore lets up to maxGarbage bytes of garbage accumulate. When the load has
// ended, it returns free memory to the system. The runtime alone would return only a part of it,
// and later. See docs/decisions/025-gc-tuning.md.
package gctune

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	maxGarbage = 64 << 20 // bytes, under load, but at most 4 times the live heap
	// With GOGC=100 the runtime lets the heap grow to this size in bytes, even if the live heap is
	// smaller than a half of it. The size is proportional to GOGC.
	minHeap    = 4 << 20
	interval   = 2 * time.Second
	idleAllocs = 1 << 20 // bytes allocated per interval; below this number the gateway is idle
)

// A tuner determines the value for GOGC.
type tuner struct {
	allocated uint64 // bytes allocated since the process was started, at the last call of next
	released  bool   // free memory was returned since the last load
}

// next returns the value for GOGC, and reports whether free memory should now be returned to the
// system. live is the size of the live heap in bytes, and allocated the number of bytes allocated
// since the start of the process.
func (t *tuner) next(live, allocated uint64) (percent int, release bool) {
	idle := allocated-t.allocated < idleAllocs
	t.allocated = allocated
	if idle {
		release = !t.released
		t.released = true
		return 100, release
	}
	t.released = false
	live = max(live, 1)
	heap := live + min(maxGarbage, 4*live) // size at which the next collection begins
	percent = int(min((heap-live)*100/live, heap*100/minHeap))
	return max(percent, 100), false
}

// Run tunes the collector until ctx is done. It does nothing if GOGC or GOMEMLIMIT is set in the
// environment.
func Run(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var t tuner
	for current := 100; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(samples)
		percent, release := t.next(samples[0].Value.Uint64(), samples[1].Value.Uint64())
		if percent != current {
			debug.SetGCPercent(percent)
			current = percent
		}
		if release {
			debug.FreeOSMemory()
		}
	}
}
