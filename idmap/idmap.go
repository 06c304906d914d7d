// Package idmap is the memory of who asked: it gives each call that goes out an
// id of its own, and hands back, once, what was put in with it.
//
// A row leaves the table exactly once, with [Table.Take] or [Table.Drain];
// whoever takes it ends the call it stands for, and nobody else can. That is
// how a gateway keeps its promise that every call ends once, whether an answer, a
// cancellation, a deadline or the death of the other side comes first.
//
// The package knows neither JSON nor MCP. It refuses rows once it was closed or drained.
package idmap

import "sync"

// A Table maps ids to values. The zero Table is empty and ready to use. All
// methods may be called concurrently and none blocks.
type Table[V any] struct {
	mu     sync.Mutex
	values map[int64]V // id → whatever brings the answer home
	last   int64
	closed bool
}

// Insert puts in what row returns for the new id, which is greater than every one
// before it; the first is 1. Row is called with the table locked, so that nobody
// meets a row that is not finished; it must not use the table. After Close or Drain
// nothing is put in, row is not called, and Add answers false.
func (t *Table[V]) Insert(row func(id int64) V) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.values == nil {
		t.values = make(map[int64]V)
	}
	t.last++
	t.values[t.last] = row(t.last)
	return true
}

// Get returns the value under id and leaves it there.
func (t *Table[V]) Get(id int64) (v V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok = t.values[id]
	return v, ok
}

// Take removes the row under id and returns its value. Of any number of calls
// for one id, one gets it.
func (t *Table[V]) Take(id int64) (v V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.values[id]; ok {
		delete(t.values, id)
	}
	return v, ok
}

// Each calls visit with every value, in no order. The table is locked meanwhile:
// visit must not use it.
func (t *Table[V]) Each(visit func(V)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.values {
		visit(v)
	}
}

// Len returns the number of rows.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.values)
}

// CloseIf is Close if may says so of each row; else nothing happens, and it answers false. The
// table is locked meanwhile: may must not use it.
func (t *Table[V]) CloseIf(may func(V) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.values {
		if !may(v) {
			return false
		}
	}
	t.closed = true
	return true
}

// Close has nothing be put in any more. The rows that there are stay.
func (t *Table[V]) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// Drain closes the table for good, removes the rows of which keep does not say that they stay (nil = none
// do), and returns their values in no order. The table is locked meanwhile: keep must not use it.
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
