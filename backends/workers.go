package backends

import (
	"context"
	"sync"
)

// workers is what runs while Run does.
type workers struct {
	mu      sync.Mutex
	ctx     context.Context             // Run's, nil before it
	queued  []func(ctx context.Context) // what is to run as soon as Run does
	closed  bool                        // Run is ending
	running sync.WaitGroup
}

func (s *Set) startWorkers(ctx context.Context, clients ClientSide) {
	s.clients = clients
	w := &s.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
	for _, f := range w.queued {
		w.running.Go(func() { f(ctx) })
	}
	w.queued = nil
}

// close has nothing be spawned any more.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// goWorker has f run for as long as Run does; it reports false if that has ended.
func (s *Set) goWorker(f func(ctx context.Context)) bool {
	w := &s.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return false
	case w.ctx == nil:
		w.queued = append(w.queued, f)
	default:
		w.running.Go(func() { f(w.ctx) })
	}
	return true
}
