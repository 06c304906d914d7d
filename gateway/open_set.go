package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// An openSet is a set of open requests or subscriptions. The zero value is empty. Its methods may
// be called concurrently.
type openSet[T comparable] struct {
	mu      sync.Mutex
	closed  bool
	all     map[T]struct{}
	drained chan struct{} // closed when all is empty; nil = nobody waits
}

// add adds one. It returns false, and adds nothing, after close.
func (s *openSet[T]) add(one T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.all == nil {
		s.all = make(map[T]struct{})
	}
	s.all[one] = struct{}{}
	return true
}

// remove removes one, if it is in the set.
func (s *openSet[T]) remove(one T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, one)
	if len(s.all) == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

func (s *openSet[T]) list() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// close makes add fail, and returns the set.
func (s *openSet[T]) close() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Collect(maps.Keys(s.all))
}

// drain waits until the set is empty or ctx is done. It is called once, after close.
func (s *openSet[T]) drain(ctx context.Context) {
	drained := make(chan struct{})
	s.mu.Lock()
	if len(s.all) == 0 {
		s.mu.Unlock()
		return
	}
	s.drained = drained
	s.mu.Unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}
