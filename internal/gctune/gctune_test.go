package gctune

import "testing"

// Under load a fixed amount of garbage may accumulate, but at most 4 times the live heap. When the
// gateway is idle, memory is returned once.
func TestTuner(t *testing.T) {
	const MB = 1 << 20
	var tune tuner
	for i, step := range []struct {
		live, allocated uint64
		percent         int
		release         bool
	}{
		{3 * MB, 10 * MB, 375, false}, // start
		{3 * MB, 10 * MB, 100, true},
		{3 * MB, 10 * MB, 100, false},
		{32 * MB, 500 * MB, 200, false},
		{100 * MB, 900 * MB, 100, false},
		{0, 950 * MB, 100, false}, // before the first collection
		{12 * MB, 950*MB + MB/2, 100, true},
		{12 * MB, 950*MB + MB, 100, false},
		{6 * MB, 960 * MB, 400, false},
		{2 * MB, 970 * MB, 250, false}, // more would make the smallest heap larger than 10 MB
		{MB, 980 * MB, 125, false},
		{MB / 2, 990 * MB, 100, false},
	} {
		percent, release := tune.next(step.live, step.allocated)
		if percent != step.percent || release != step.release {
			t.Errorf("step %d: %d %%, release %v; want %d %%, %v", i, percent, release, step.percent, step.release)
		}
	}
}
