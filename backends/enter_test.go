package backends

import (
	"sync"
	"testing"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// A call that is cancelled while it enters a queue ends once: by Cancel, or by the goroutine that
// wanted to queue it.
func TestCancelMeetsEnter(t *testing.T) {
	m := wire.NewRequest("1", "tools/call", []byte(`{"name":"t"}`))
	for range 20_000 {
		ended := make(ResponseChan, 2)
		q := newCall(new(Set), "a", contract.BackendRequest{Message: m}, ended)
		var mu sync.Mutex
		queued := false
		cq := &callQueue{remove: func(*queuedCall) bool {
			mu.Lock()
			defer mu.Unlock()
			was := queued
			queued = false
			return was
		}}
		var done sync.WaitGroup
		done.Go(func() { q.Cancel(nil) })
		mu.Lock()
		queued = q.enter(cq)
		refused := !queued
		mu.Unlock()
		if refused {
			q.fail(peer.ErrCancelled)
		}
		done.Wait()
		if len(ended) != 1 {
			t.Fatalf("ended %d times", len(ended))
		}
	}
}
