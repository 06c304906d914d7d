package backends

import (
	"slices"

	"mcpgateway/internal/peer"
)

// A callQueue contains calls that are not sent yet: the queue of a callLimiter, or the queues of a
// backendConn.
//
// Cancel marks a call as cancelled before it reads queuedCall.queue. A call gets into a callQueue
// by enter, which sets queuedCall.queue before it reads the mark; so at least one of the two sees
// what the other has set. A call that has left its callQueue is sent, enters another one or ends,
// and [peer.Peer.TrySend] reads the mark too. Therefore a cancelled call ends, and ends once,
// wherever it is.
type callQueue struct {
	// remove removes a call, and reports whether the call was in the queue
	remove func(*queuedCall) bool
}

// enter notes that the call is in the queue cq from now on. It reports false if the call was
// cancelled: then the call must not be put there. It is called with the lock of cq held, or before
// Limiter.Submit.
func (q *queuedCall) enter(cq *callQueue) bool {
	q.queue.Store(cq)
	return !q.IsCancelled()
}

// connQueues contains the calls of a backendConn that are not sent yet. Except for remove, it is
// used with backendConn.mu held. A call enters the callQueue once, and moves between the slices
// after that.
type connQueues struct {
	callQueue
	waiting    []*queuedCall // for a ready link
	retries    []*queuedCall // for the refresh after which they are sent once more (modern servers)
	subscribes []*queuedCall // for an acknowledged listen (modern servers)
}

// add queues a call for the next ready link. It fails if the call was cancelled.
func (cq *connQueues) add(q *queuedCall) error {
	if !q.enter(&cq.callQueue) {
		return peer.ErrCancelled
	}
	cq.waiting = append(cq.waiting, q)
	return nil
}

// take removes and returns the calls that wait for a ready link.
func (cq *connQueues) take() (calls []*queuedCall) {
	calls, cq.waiting = cq.waiting, nil
	return calls
}

// disconnected lets all calls wait for the next link.
func (cq *connQueues) disconnected() {
	if len(cq.retries)+len(cq.subscribes) > 0 {
		cq.waiting = slices.Concat(cq.retries, cq.subscribes, cq.waiting)
		cq.retries, cq.subscribes = nil, nil
	}
}

// takeSubscribes removes and returns the resources/subscribe calls of a session that wait for a
// ready link or a listen, and for whose URI matchURI reports true.
func (cq *connQueues) takeSubscribes(session string,
	matchURI func(string) bool) (removed []*queuedCall) {
	match := func(q *queuedCall) bool {
		return q.subscribes() && q.request.Session == session && matchURI(q.subscription.uri)
	}
	var pending []*queuedCall
	cq.waiting, removed = partition(cq.waiting, match)
	cq.subscribes, pending = partition(cq.subscribes, match)
	return append(removed, pending...)
}

// removeLocked removes a call, and reports whether it was in the queue.
func (cq *connQueues) removeLocked(q *queuedCall) bool {
	return removeCall(&cq.waiting, q) || removeCall(&cq.retries, q) ||
		removeCall(&cq.subscribes, q)
}

func (cq *connQueues) isEmpty() bool {
	return len(cq.waiting)+len(cq.retries)+len(cq.subscribes) == 0
}

func removeCall(calls *[]*queuedCall, q *queuedCall) bool {
	i := slices.Index(*calls, q)
	if i >= 0 {
		*calls = slices.Delete(*calls, i, i+1)
	}
	return i >= 0
}

// partition returns the calls for which match reports false, and those for which it reports true.
func partition(calls []*queuedCall, match func(*queuedCall) bool) (rest, matching []*queuedCall) {
	for _, q := range calls {
		if match(q) {
			matching = append(matching, q)
		} else {
			rest = append(rest, q)
		}
	}
	return rest, matching
}
