package quota

import (
	"sync"
	"testing"
)

func TestCounter(t *testing.T) {
	var c Counter[string]
	acquire := func(key string, want Excess) {
		t.Helper()
		if got := c.Check(key, 5, Half(5)); got != want {
			t.Errorf("Check(%q) = %d, want %d", key, got, want)
		}
		if got := c.Acquire(key, 5, Half(5)); got != want {
			t.Errorf("Acquire(%q) = %d, want %d", key, got, want)
		}
	}
	for range 3 {
		acquire("1", None)
	}
	acquire("1", PerKey)
	acquire("2", None)
	acquire("2", None)
	acquire("2", Total)
	acquire("3", Total)
	c.Release("1")
	acquire("3", None)
	acquire("1", Total)
	if c.Total() != 5 || c.Of("1") != 2 || c.Keys() != 3 {
		t.Errorf("%d items, %d of 1, %d keys", c.Total(), c.Of("1"), c.Keys())
	}
	for _, key := range []string{"1", "1", "2", "2", "3"} {
		c.Release(key)
	}
	if c.Total() != 0 || c.Keys() != 0 {
		t.Errorf("%d items of %d keys are left", c.Total(), c.Keys())
	}
}

// Concurrent calls of Acquire never exceed the limit, and succeed while the limit is not reached.
func TestBytesAreExact(t *testing.T) {
	var b Bytes
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 1000 {
				if !b.Acquire(10, 80) {
					t.Error("refused although there is room")
					return
				}
				b.Release(10)
			}
		})
	}
	users.Wait()
	if !b.Acquire(80, 80) || b.Acquire(1, 80) {
		t.Error("the limit does not hold")
	}
	b.Release(80)
	if b.Used() != 0 {
		t.Errorf("%d bytes are left", b.Used())
	}
}
