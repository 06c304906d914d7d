//go:build !race

package lockrank

import "sync"

// A Mutex is a mutex of the rank R. The goroutine that has locked it must unlock it.
type Mutex[R Rank] struct{ sync.Mutex }
