package backends

import (
	"context"
	"sync"

	"mcpgateway/backends/internal/lockrank"
)

// workers manages the goroutines that Set.Run waits for. Create it with newWorkers.
type workers struct {
	alive context.Context // done when Run is ending
	end   context.CancelCauseFunc

	mu      lockrank.Mutex[innermostRank]
	ctx     context.Context             // Run's context, nil before Run
	queued  []func(ctx context.Context) // started as soon as Run begins
	closed  bool                        // Run is ending
	running sync.WaitGroup
}

func newWorkers() *workers {
	w := &workers{}
	w.alive, w.end = context.WithCancelCause(context.Background())
	return w
}

// start starts the queued goroutines. From then on goWorker starts goroutines at once.
func (w *workers) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
	for _, f := range w.queued {
		w.running.Go(func() { f(ctx) })
	}
	w.queued = nil
}

// close prevents the start of further goroutines.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// goWorker runs f in a goroutine that Run waits for; before Run begins, f is queued. goWorker
// reports false if Run is ending.
func (w *workers) goWorker(f func(ctx context.Context)) bool {
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
