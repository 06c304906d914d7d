// Package idmap holds values under ids that it assigns: a gateway stores each outbound call under
// the id that it is sent with, and finds it again when the response arrives.
//
// A value leaves the table exactly once, with [Table.Take] or [Table.Drain]; the function that
// takes it completes the call, and no other can. So every call completes once, whichever comes
// first: a response, a cancellation, a timeout or the end of the connection.
//
// The package knows neither JSON nor MCP. After Close or Drain it accepts no more values.
package idmap

import "sync"

// A Table maps ids to values. The zero Table is empty and ready to use. All
// methods may be called concurrently and none blocks.
type Table[V any] struct {
	mu     sync.Mutex
	values map[int64]V // by id
	last   int64       // latest id; 0 = none
	closed bool
}

// Insert stores the value that newValue returns for the next id. The first id is 1, and each is
// greater than all before it. newValue is called with the table locked, so that no other goroutine
// sees an unfinished value; it must not use the table. After Close or Drain, Insert returns false
// and does not call newValue.
func (t *Table[V]) Insert(newValue func(id int64) V) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.values == nil {
		t.values = make(map[int64]V)
	}
	t.last++
	t.values[t.last] = newValue(t.last)
	return true
}

// Get returns the value under id without removing it.
func (t *Table[V]) Get(id int64) (v V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok = t.values[id]
	return v, ok
}

// Take removes the value under id and returns it. Of concurrent calls with one id, one gets the
// value.
func (t *Table[V]) Take(id int64) (v V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.values[id]; ok {
		delete(t.values, id)
	}
	return v, ok
}

// Each calls visit with every value, in no particular order. The table is locked meanwhile: visit
// must not use it.
func (t *Table[V]) Each(visit func(V)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.values {
		visit(v)
	}
}

// Len returns the number of values.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.values)
}

// CloseIf closes the table and returns true if ok returns true for every value; otherwise it
// changes nothing and returns false. The table is locked meanwhile: ok must not use it.
func (t *Table[V]) CloseIf(ok func(V) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.values {
		if !ok(v) {
			return false
		}
	}
	t.closed = true
	return true
}

// Close makes Insert fail from now on. The values stay.
func (t *Table[V]) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// Drain closes the table, removes the values for which keep returns false (nil = all), and returns
// them in no particular order. The table is locked meanwhile: keep must not use it.
func (t *Table[V]) Drain(keep func(V) bool) []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	all := make([]V, 0, len(t.values))
	for id, v := range t.values {
		if keep == nil || !keep(v) {
			all = append(all, v)
			delete(t.values, id)
		}
	}
	return all
}
