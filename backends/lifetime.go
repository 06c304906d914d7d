package backends

import (
	"context"
	"sync"
	"time"

	"mcpgateway/backends/internal/lockrank"
)

// A lifetime owns the goroutines and contexts of a backend. Create it with newLifetime.
type lifetime struct {
	workers     *workers
	serving     context.Context // done when the backend is removed from the table
	stopServing context.CancelFunc
	alive       context.Context // done when the connections of the backend must end
	kill        context.CancelCauseFunc
	ended       chan struct{} // closed when nothing of the removed backend runs
	// ended of the backends that must have ended before this one starts; not changed after start
	predecessors []<-chan struct{}

	mu      lockrank.Mutex[lifetimeRank] // so that no goroutine is started after remove
	running sync.WaitGroup
}

func newLifetime(w *workers) *lifetime {
	lt := &lifetime{workers: w, ended: make(chan struct{})}
	lt.alive, lt.kill = context.WithCancelCause(w.alive)
	lt.serving, lt.stopServing = context.WithCancel(lt.alive)
	return lt
}

// goWorker starts a goroutine of the backend by workers.goWorker. The context of f is done when the
// backend is removed or the gateway ends. f must then end as soon as its calls in flight have
// ended. goWorker reports false if the backend was removed or the gateway is ending.
func (lt *lifetime) goWorker(f func(serving context.Context)) bool {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.serving.Err() != nil {
		return false
	}
	lt.running.Add(1)
	ok := lt.workers.goWorker(func(context.Context) {
		defer lt.running.Done()
		f(lt.serving)
	})
	if !ok {
		lt.running.Done()
	}
	return ok
}

// remove is called when the backend is removed from the table.
func (lt *lifetime) remove() {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	lt.stopServing()
}

// whenEnded calls done when the last goroutine of a removed backend has ended, unless the gateway
// is ending.
func (lt *lifetime) whenEnded(done func()) {
	lt.workers.goWorker(func(context.Context) {
		lt.running.Wait()
		lt.kill(nil)
		done()
		close(lt.ended) // afterwards, because done may start a successor again that has failed
	})
}

// killAfter ends the connections of a removed backend with the cause why, if the backend has not
// ended within a time.
func (lt *lifetime) killAfter(limit time.Duration, why error) {
	lt.workers.goWorker(func(ctx context.Context) {
		select {
		case <-lt.ended:
		case <-time.After(limit):
			lt.kill(why)
		case <-ctx.Done():
		}
	})
}

// awaitPredecessors waits for the end of the backends that must have ended before this one starts.
// If ctx is done first, it returns ctx.Err().
func (lt *lifetime) awaitPredecessors(ctx context.Context) error {
	for _, ended := range lt.predecessors {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// awaitEnd waits until nothing of the removed backend runs, or the gateway is ending. If ctx is
// done first, it returns the cause.
func (lt *lifetime) awaitEnd(ctx context.Context) error {
	select {
	case <-lt.ended:
	case <-lt.workers.alive.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
