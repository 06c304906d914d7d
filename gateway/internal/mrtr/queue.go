package mrtr

import (
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
)

// MaxInputRequests bounds the unanswered input requests of one call or task.
const MaxInputRequests = 256

// A PendingInput is an unanswered request of a legacy backend to a stateless client.
type PendingInput struct {
	*peer.Request
	Key string // in inputRequests and inputResponses
	// StaysOnCall means that the request is declined when its call ends, not moved to another
	// call: its attribution to the call is certain, or it was moved to this call before.
	StaysOnCall bool
}

// An Answer is a client's valid response to a PendingInput.
type Answer struct {
	*PendingInput
	Result []byte
}

// A Queue contains the unanswered input requests of one call or task, the oldest first. The zero
// value is empty. A lock of its owner guards it. Each request is taken or removed once; whoever
// takes it must respond to it.
type Queue struct {
	open  []*PendingInput
	count int // input requests so far, for their keys
}

// Add adds a request. At MaxInputRequests it returns nil.
func (q *Queue) Add(r *peer.Request) *PendingInput {
	if len(q.open) >= MaxInputRequests {
		return nil
	}
	q.count++
	in := &PendingInput{Request: r, Key: Key(q.count)}
	q.open = append(q.open, in)
	return in
}

// Remove removes a PendingInput. It returns false if the request was already removed or taken.
func (q *Queue) Remove(in *PendingInput) bool {
	i := slices.Index(q.open, in)
	if i >= 0 {
		q.open = slices.Delete(q.open, i, i+1)
	}
	return i >= 0
}

// TakeAnswered removes and returns the requests that have a valid response. The function response
// returns the client's response to a PendingInput, nil if there is none.
func (q *Queue) TakeAnswered(response func(*PendingInput) []byte) (answered []Answer) {
	var unanswered []*PendingInput
	for _, in := range q.open {
		if result := response(in); IsValidResponse(in.Method(), result) {
			answered = append(answered, Answer{in, result})
		} else {
			unanswered = append(unanswered, in)
		}
	}
	q.open = unanswered
	return answered
}

// TakeAll removes and returns all requests.
func (q *Queue) TakeAll() []*PendingInput {
	all := q.open
	q.open = nil
	return all
}

func (q *Queue) Len() int { return len(q.open) }

// Requests returns the requests in the form for a modern client.
func (q *Queue) Requests(backend string) (requests []protocol.InputRequest) {
	for _, in := range q.open {
		requests = append(requests, toInputRequest(in.Key, backend, in.Message))
	}
	return requests
}
