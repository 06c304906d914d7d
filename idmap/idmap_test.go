package idmap

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"weak"
)

// add inserts v and returns its id, or 0 if the table is closed.
func add[V any](t *Table[V], v V) (id int64) {
	t.Insert(func(n int64) V { id = n; return v })
	return id
}

func TestIDsAscendFromOneAndAreNotReused(t *testing.T) {
	var table Table[string]
	for want := int64(1); want <= 100; want++ {
		if id := add(&table, "v"); id != want {
			t.Fatalf("got id %d, want %d", id, want)
		}
		if want%3 == 0 {
			table.Take(want)
		}
	}
	if table.Len() != 67 {
		t.Errorf("Len: %d", table.Len())
	}
}

func TestGetKeepsAndTakeRemoves(t *testing.T) {
	var table Table[string]
	if _, ok := table.Get(1); ok {
		t.Error("an empty table contains a value")
	}
	if _, ok := table.Take(1); ok {
		t.Error("an empty table returned a value")
	}
	id := add(&table, "a")
	add(&table, "b")
	for range 2 {
		if v, ok := table.Get(id); v != "a" || !ok {
			t.Errorf("Get: %q, %v", v, ok)
		}
	}
	if v, ok := table.Take(id); v != "a" || !ok {
		t.Errorf("Take: %q, %v", v, ok)
	}
	for name, get := range map[string]func(int64) (string,
		bool){"Get": table.Get, "Take": table.Take} {
		for _, gone := range []int64{id, 0, -1, 3, 1 << 62} {
			if v, ok := get(gone); v != "" || ok {
				t.Errorf("%s(%d): %q, %v", name, gone, v, ok)
			}
		}
	}
	if v, ok := table.Get(id + 1); v != "b" || !ok {
		t.Errorf("the other value: %q, %v", v, ok)
	}
}

func TestDrainReturnsAllAndCloses(t *testing.T) {
	var table Table[int]
	for v := range 10 {
		add(&table, v)
	}
	table.Take(4)
	got := table.Drain(nil)
	slices.Sort(got)
	if want := []int{0, 1, 2, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("Drain: %v, want %v", got, want)
	}
	called := false
	if table.Insert(func(int64) int { called = true; return 0 }) || called {
		t.Error("a value was inserted after Drain")
	}
	if again := table.Drain(nil); len(again) != 0 || table.Len() != 0 {
		t.Errorf("drained twice: %v", again)
	}
	if _, ok := table.Take(1); ok {
		t.Error("a drained value was taken")
	}
	var empty Table[int]
	if got := empty.Drain(nil); len(got) != 0 || add(&empty, 1) != 0 {
		t.Error("a table that was never used does not close")
	}
}

// A panic in newValue leaves the table unlocked and without the value.
func TestInsertSurvivesAPanic(t *testing.T) {
	var table Table[int]
	func() {
		defer func() { recover() }()
		table.Insert(func(int64) int { panic("no value") })
	}()
	if table.Len() != 0 || add(&table, 7) != 2 {
		t.Error("the table has changed")
	}
}

// Of many concurrent calls of Take and one of Drain, exactly one gets each value.
func TestEachValueIsTakenOnce(t *testing.T) {
	const values, takers = 2000, 8
	var table Table[int]
	var taken [values]atomic.Int32
	ids := make(chan int64, values)
	var all, added sync.WaitGroup
	for part := range 4 {
		added.Go(func() {
			for v := part; v < values; v += 4 {
				if id := add(&table, v); id > 0 {
					ids <- id
				} else {
					taken[v].Add(1) // Insert has failed, because the table is closed
				}
			}
		})
	}
	for range takers {
		all.Go(func() {
			for id := range ids {
				var race sync.WaitGroup
				for range 2 {
					race.Go(func() {
						table.Get(id)
						if v, ok := table.Take(id); ok {
							taken[v].Add(1)
						}
					})
				}
				race.Wait()
				if id == values/2 {
					for _, v := range table.Drain(nil) {
						taken[v].Add(1)
					}
				}
			}
		})
	}
	added.Wait()
	close(ids)
	all.Wait()
	for v := range taken {
		if n := taken[v].Load(); n != 1 {
			t.Fatalf("value %d was taken %d times", v, n)
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d values are left", table.Len())
	}
}

// Concurrent calls of Insert get different ids, and each goroutine gets ascending ids.
func TestConcurrentInsertsGetUniqueIDs(t *testing.T) {
	const adders, each = 8, 500
	var table Table[int64]
	var seen sync.Map
	var all sync.WaitGroup
	for range adders {
		all.Go(func() {
			last := int64(0)
			for range each {
				id := add(&table, 0)
				if _, dup := seen.LoadOrStore(id, true); dup || id <= last {
					t.Errorf("id %d after %d, given before: %v", id, last, dup)
				}
				last = id
			}
		})
	}
	all.Wait()
	if table.Len() != adders*each {
		t.Errorf("Len: %d", table.Len())
	}
}

// No goroutine can take a value before newValue has returned it.
func TestValuesAreVisibleOnlyWhenFinished(t *testing.T) {
	type value struct{ id int64 }
	var table Table[*value]
	var all sync.WaitGroup
	all.Go(func() {
		for range 1000 {
			table.Insert(func(id int64) *value {
				r := &value{}
				runtime.Gosched()
				r.id = id
				return r
			})
		}
	})
	all.Go(func() {
		for id := int64(1); id <= 1000; {
			if r, ok := table.Take(id); ok {
				if r.id != id {
					t.Errorf("the value under id %d has the id %d", id, r.id)
				}
				id++
			} else {
				runtime.Gosched()
			}
		}
	})
	all.Wait()
}

// The table keeps no reference to a removed value.
func TestTakenValuesAreReleased(t *testing.T) {
	var table Table[*[64]byte]
	put := func() (int64, weak.Pointer[[64]byte]) {
		v := new([64]byte)
		return add(&table, v), weak.Make(v)
	}
	add(&table, nil)
	id, taken := put()
	table.Take(id)
	runtime.GC()
	if taken.Value() != nil {
		t.Error("a taken value is still held")
	}
	_, drained := put()
	table.Drain(nil)
	runtime.GC()
	if drained.Value() != nil {
		t.Error("a drained value is still held")
	}
	runtime.KeepAlive(&table)
}

func TestAllocations(t *testing.T) {
	var table Table[int]
	id := int64(0)
	value := func(n int64) int { id = n; return 1 }
	for range 1000 {
		table.Insert(value)
	}
	if n := testing.AllocsPerRun(1000,
		func() { table.Insert(value); table.Get(id); table.Take(id) }); n > 0 {
		t.Errorf("a value costs %v allocations", n)
	}
}

// BenchmarkTable measures Insert, Get and Take of one value in a table with others.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d values", n), func(b *testing.B) {
			var table Table[int]
			id := int64(0)
			value := func(n int64) int { id = n; return 1 }
			for range n - 1 {
				table.Insert(value)
			}
			b.ReportAllocs()
			for b.Loop() {
				table.Insert(value)
				table.Get(id)
				table.Take(id)
			}
		})
	}
}

func BenchmarkTableInParallel(b *testing.B) {
	var table Table[int]
	b.RunParallel(func(pb *testing.PB) {
		id := int64(0)
		value := func(n int64) int { id = n; return 1 }
		for pb.Next() {
			table.Insert(value)
			table.Get(id)
			table.Take(id)
		}
	})
}
