package gateway

import (
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// origin returns the call to which a backend's message for the session belongs. The first rule
// that applies decides:
//
//   - the call on whose stream the message arrived
//   - the tasks/result request for the task that the message names
//   - none, if the message arrived on the stream of an ended call
//   - the newest call at the backend
//
// The call only determines the stream on which the client gets the message; the session is already
// certain. The last rule chooses the newest call because clients may have abandoned older calls
// without cancelling them.
func (t *callTracker) origin(backend string, from contract.Attribution,
	m wire.Message) *sessionCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.originLocked(backend, from, m)
}

func (t *callTracker) originLocked(backend string, from contract.Attribution,
	m wire.Message) *sessionCall {
	if c := handlerCall(from.Handler); c != nil && &c.s.calls == t {
		return c
	}
	task := relatedTask(m)
	var newest *sessionCall
	for c := t.inFlight.newest; c != nil && (newest == nil || task != ""); c = c.older {
		switch {
		case c.Route.Backend != backend:
		case task != "" && c.Method == protocol.MethodTasksResult && c.Route.Original == task:
			return c
		case newest == nil:
			newest = c
		}
	}
	if from.StreamEnded {
		return nil // the message belongs to that call
	}
	return newest
}

// handlerCall returns the client's call that a handler belongs to; nil = it belongs to none, or to
// a resumableCall.
func handlerCall(h contract.CallHandler) *sessionCall {
	switch h := h.(type) {
	case *sessionCall:
		return h
	case retryHandler:
		return h.c
	}
	return nil
}

// originCall returns the call to which a backend's message for the client belongs; nil = none. The
// result is certain if the message arrived on a stream: it belongs to the call of the stream, or
// to no call if the stream's call has ended or is no resumableCall of the client. Several clients
// may share a statelessClient, and must not receive each other's messages.
//
// A message without a stream is attributed to the call with the highest attributionScore, the
// oldest if there are several; to none if all scores are 0. The statelessClient is already certain
// in any case.
func (sc *statelessClient) originCall(backend string,
	from contract.Attribution) (rc *resumableCall, certain bool) {
	if rc, ok := from.Handler.(*resumableCall); ok && rc.client == sc {
		return rc, true
	}
	if from.Handler != nil || from.StreamEnded {
		return nil, true
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	best := 0
	for at := sc.resumable.Front(); at != nil; at = at.Next() {
		candidate := at.Value.(*resumableCall)
		if candidate.route.Backend != backend {
			continue
		}
		if rank := candidate.attributionScore(); rank > best {
			rc, best = candidate, rank
		}
	}
	return rc, false
}

// hasOtherCall reports whether a message without a stream that was attributed to rc may belong to
// another call of the client.
func (sc *statelessClient) hasOtherCall(rc *resumableCall) bool {
	for _, other := range sc.resumableCalls() {
		if other != rc && other.route.Backend == rc.route.Backend && other.attributionScore() > 0 {
			return true
		}
	}
	return false
}

// logReceiver returns the client's waiting request to which a backend's log message belongs; nil if
// there is none or it is not certain. A message without a stream may belong to any call at the
// backend. If the calls are not all requests on one connection, or one is suspended, it is not
// certain to which of the clients that share the statelessClient the message belongs.
func (sc *statelessClient) logReceiver(backend string, from contract.Attribution) *statelessCall {
	if c, ok := from.Handler.(*statelessCall); ok && c.client == sc {
		return c
	}
	rc, certain := sc.originCall(backend, from)
	receiver := rc.waitingCall()
	if certain || rc != nil && receiver == nil {
		return receiver
	}
	possible := sc.completions.list()
	for _, other := range sc.resumableCalls() {
		if other.route.Backend == backend && other.attributionScore() > 0 {
			possible = append(possible, other.waitingCall())
		}
	}
	for _, c := range possible {
		switch {
		case c == nil:
			return nil
		case c.Route.Backend != backend:
		case receiver == nil:
			receiver = c
		case c.conn != receiver.conn:
			return nil
		}
	}
	return receiver
}

// attributionScore rates the probability that a message without a stream belongs to this call: 3
// if a client's request waits for the response and no input request is open, 2 if a request waits
// and input requests are open, 1 if the call is suspended, 0 if it has a response or has ended.
func (rc *resumableCall) attributionScore() int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	switch {
	case rc.ended, rc.response != nil:
		return 0
	case rc.call == nil:
		return 1
	case rc.inputs.Len() > 0:
		return 2
	}
	return 3
}
