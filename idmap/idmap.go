// Package idmap assigns ids to values and finds the values by their ids. The gateway sends each
// outbound call with such an id, and finds the call by the id in the response.
//
// [Table.Take] and [Table.Drain] remove values. Only one caller gets a removed value and can
// complete the call, so that a call completes once, even if a response, a cancellation, a timeout
// and the end of the connection are concurrent.
//
// The package does not depend on JSON or MCP. A closed table rejects further values.
package idmap

import "sync"

// A Table maps ids to values. The zero Table is empty and ready to use. All methods may be called
// concurrently, and none blocks.
type Table[V any] struct {
	mu     sync.Mutex
	values map[int64]V // by id
	last   int64       // latest id; 0 = none
	closed bool
}

// Insert stores the value that newValue returns for the next id. The first id is 1, and each id is
// greater than all earlier ones. newValue is called with the table locked, so that no other
// goroutine sees an unfinished value, and must not use the table. If the table is closed, Insert
// returns false and does not call newValue.
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

// Take removes the value under id and returns it. If concurrent calls have the same id, only one
// of them gets the value.
func (t *Table[V]) Take(id int64) (v V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.values[id]; ok {
		delete(t.values, id)
	}
	return v, ok
}

// Each calls visit with every value, in no particular order. The table is locked during these
// calls: visit must not use the table.
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

// CloseIf closes the table and returns true if match returns true for every value. Otherwise it
// changes nothing and returns false. The table is locked during these calls: match must not use
// the table.
func (t *Table[V]) CloseIf(match func(V) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.values {
		if !match(v) {
			return false
		}
	}
	t.closed = true
	return true
}

// Close closes the table: further calls of Insert return false. The table keeps its values.
func (t *Table[V]) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// Drain closes the table, removes the values for which keep returns false, or all values if keep
// is nil, and returns the removed values in no particular order. The table is locked during these
// calls: keep must not use the table.
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
