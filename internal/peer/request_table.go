package peer

import (
	"context"
	"sync"

	"mcpgateway/internal/wire"
)

// A requestTable contains the open requests of the remote side, and counts the responses that are
// being written. The zero value is empty.
type requestTable struct {
	mu           sync.Mutex
	open         map[wire.ID]*Request
	unwritten    int             // ended requests and batches with unwritten responses
	drainWaiters []chan struct{} // each is closed when no response is owed
	// keepMap keeps the map when it is empty. Push peers do not, because many of them may be idle
	// for hours.
	keepMap bool
}

// add registers a request. If its id is in use, or if there are limit open requests (0 = no limit),
// it returns the error with which the caller must call r.respond.
func (t *requestTable) add(r *Request, limit int) *wire.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, dup := t.open[r.id]; dup {
		t.unwritten++
		return wire.Errorf(wire.CodeInvalidRequest,
			"Invalid request: a request with this id is in flight")
	}
	if limit > 0 && len(t.open) >= limit {
		t.unwritten++
		return wire.Errorf(wire.CodeInternalError,
			"Too many requests in flight: at most %d are allowed; wait for answers", limit)
	}
	if t.open == nil {
		t.open = make(map[wire.ID]*Request)
	}
	t.open[r.id] = r
	return nil
}

// addBatch counts an array of responses that is to be written.
func (t *requestTable) addBatch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unwritten++
}

// get returns the open request with this id; nil = none.
func (t *requestTable) get(id wire.ID) *Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id]
}

// all returns the open requests in no particular order.
func (t *requestTable) all() []*Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*Request, 0, len(t.open))
	for _, r := range t.open {
		all = append(all, r)
	}
	return all
}

// remove removes a request whose response is to be written.
func (t *requestTable) remove(r *Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.open, r.id); len(t.open) == 0 && !t.keepMap {
		t.open = nil
	}
	t.unwritten++
}

// written counts the response to a removed or rejected request, or the responses to a batch, as
// written. It wakes drain.
func (t *requestTable) written() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unwritten--
	if len(t.open)+t.unwritten > 0 {
		return
	}
	for _, done := range t.drainWaiters {
		close(done)
	}
	t.drainWaiters = nil
}

// owesResponse reports whether the remote side is still to get a response.
func (t *requestTable) owesResponse() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)+t.unwritten > 0
}

// drain waits until no response is owed, or until ctx is done.
func (t *requestTable) drain(ctx context.Context) {
	t.mu.Lock()
	if len(t.open)+t.unwritten == 0 {
		t.mu.Unlock()
		return
	}
	done := make(chan struct{})
	t.drainWaiters = append(t.drainWaiters, done)
	t.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
