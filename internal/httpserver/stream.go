package httpserver

import (
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// An sseStream contains the messages of one HTTP response, to be sent as events or JSON: the
// messages that belong to the requests of one POST or, in the standalone stream, to no request. It
// outlives the connection over which it is sent. It belongs to a [streamSet].
type sseStream struct {
	// number is the first part of the event ids; 0 = not an event stream yet, or the standalone
	// stream.
	number int
	eventQueue
	resumption resumption
	done       bool          // no further event is added
	cutOff     bool          // its client was disconnected before the end
	writer     *streamWriter // exchange that sends the stream; nil = none

	// Of the stream of a POST:

	unanswered  []wire.ID  // requests without a response so far
	lease       *bodyLease // lease for the body of the requests; nil once all are answered
	delivered   bool       // the requests were passed to the handler
	hasResponse bool       // events contains a response
	jsonOnly    bool       // sent as JSON, which contains only the response
	isBatch     bool       // the requests are a batch: their responses are one array
}

// A resumption is the state of a stream whose exchange ends before the stream is complete.
type resumption int

const (
	notResumable resumption = iota // the client has no event id so far
	resumable                      // the client has an event id and can request the rest
	abandoned                      // the client does not get the rest: messages are dropped
)

// releaseLease releases the lease for the body of the requests of st, at most once.
func (st *sseStream) releaseLease() {
	if st.lease != nil {
		st.lease.release()
		st.lease = nil
	}
}

// eventID returns an event id, which is unique within a session and contains the stream number.
func eventID(stream, number int) string {
	return strconv.Itoa(stream) + "-" + strconv.Itoa(number)
}

// parseEventID is the inverse of eventID.
func parseEventID(id string) (stream, number int, ok bool) {
	a, b, _ := strings.Cut(id, "-")
	stream, errA := strconv.Atoi(a)
	number, errB := strconv.Atoi(b)
	ok = errA == nil && errB == nil && stream >= 0 && number >= 0 && eventID(stream, number) == id
	return stream, number, ok
}
