package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The heap of a gateway is small and each call leaves some garbage: with the collector's own setting, which lets as
// much garbage gather as there is in use, it would run dozens of times a second under load, and take a fifth of the
// processor. So while there is much to do more may gather, up to garbage; and when that is over what is free is given
// back to the system, as the runtime by itself would do late and in part. See docs/decisions/025-gc-tuning.md.
const (
	garbage = 64 << 20 // bytes that may gather under load; 4 times what is in use at most
	lookAt  = 2 * time.Second
	little  = 1 << 20 // bytes that are allocated between two looks when there is nothing to do
)

// A thrift decides on the collector's setting.
type thrift struct {
	allocated uint64 // since the start, when it looked last
	released  bool   // since there was last much to do
}

// look is told how many bytes are in use, and how many were allocated since the process was started. It returns what
// GOGC is to be, and whether free memory is to be given back now.
func (t *thrift) look(live, allocated uint64) (percent int, release bool) {
	quiet := allocated-t.allocated < little
	t.allocated = allocated
	if quiet {
		release = !t.released
		t.released = true
		return 100, release
	}
	t.released = false
	return int(min(max(garbage*100/max(live, 1), 100), 400)), false
}

// save sets the collector as there is much to do or little, until ctx is done. Where the environment says how it is
// to be set, that counts.
func save(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	figures := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	tick := time.NewTicker(lookAt)
	defer tick.Stop()
	var t thrift
	for now := 100; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(figures)
		percent, release := t.look(figures[0].Value.Uint64(), figures[1].Value.Uint64())
		if percent != now {
			debug.SetGCPercent(percent)
			now = percent
		}
		if release {
			debug.FreeOSMemory()
		}
	}
}
