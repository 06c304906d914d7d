//go:build race

package lockrank

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// A Mutex is a mutex of the rank R. The goroutine that has locked it must unlock it.
type Mutex[R Rank] struct{ mu sync.Mutex }

// held contains the ranks of the mutexes that each goroutine holds, by the id of the goroutine.
var held = struct {
	sync.Mutex
	ranks map[string][]int
}{ranks: make(map[string][]int)}

// Lock locks the mutex. It panics if the goroutine holds a Mutex of the same or a greater rank.
func (m *Mutex[R]) Lock() {
	var r R
	id, rank := goroutine(), len(r)
	held.Lock()
	for _, other := range held.ranks[id] {
		if other >= rank {
			held.Unlock()
			panic(fmt.Sprintf("lock order: %T is locked while a mutex of rank %d is held", r, other))
		}
	}
	held.ranks[id] = append(held.ranks[id], rank)
	held.Unlock()
	m.mu.Lock()
}

// Unlock unlocks the mutex.
func (m *Mutex[R]) Unlock() {
	var r R
	id, rank := goroutine(), len(r)
	held.Lock()
	i := slices.Index(held.ranks[id], rank)
	if i < 0 {
		held.Unlock()
		panic(fmt.Sprintf("lock order: %T is unlocked by a goroutine that has not locked it", r))
	}
	held.ranks[id] = slices.Delete(held.ranks[id], i, i+1)
	if len(held.ranks[id]) == 0 {
		delete(held.ranks, id)
	}
	held.Unlock()
	m.mu.Unlock()
}

// goroutine returns the id of the running goroutine, from the first line of its stack trace.
func goroutine() string {
	var buffer [64]byte
	text := buffer[:runtime.Stack(buffer[:], false)]
	return string(bytes.Fields(text)[1]) // goroutine 7 [running]:
}
