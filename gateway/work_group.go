package gateway

import (
	"context"
	"sync"
)

// A workGroup is a set of goroutines that ends with a context. Create it with newWorkGroup.
type workGroup struct {
	ctx    context.Context // context of the goroutines
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func newWorkGroup() *workGroup {
	w := &workGroup{}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Go calls f in a goroutine. After close it does nothing and returns false.
func (w *workGroup) Go(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.running.Go(f)
	}
	return !w.closed
}

// close cancels the context and waits until all goroutines have ended.
func (w *workGroup) close() {
	w.cancel()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

// A cancelFunc is a peer.CancelHandler that does not read the params of a cancellation.
type cancelFunc func()

// HandleCancel implements peer.CancelHandler.
func (f cancelFunc) HandleCancel([]byte) { f() }
