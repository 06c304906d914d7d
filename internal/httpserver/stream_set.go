package httpserver

import (
	"slices"

	"mcpgateway/internal/wire"
)

// A streamSet contains the streams of one session: the standalone stream and the streams of its
// POSTs. It chooses the stream of each message, counts the bytes of all streams, and retains events
// so that a broken stream can be resumed. It has no lock: the mu of the session guards it. With
// HTTP+SSE it has only the standalone stream.
type streamSet struct {
	single     bool // HTTP+SSE; immutable
	standalone *sseStream
	// openRequests contains the unanswered requests and their streams; nil = none.
	openRequests map[wire.ID]*sseStream
	numbered     []*sseStream // further open or resumable event streams, by number
	lastNumber   int          // highest number of a stream
	closed       bool         // nothing is retained
	closing      []*sseStream // streams being sent after the set was closed

	unsent   int // bytes of unsent messages for connected clients
	retained int // bytes retained for clients that may reconnect
}

func newStreamSet(single bool) streamSet {
	return streamSet{single: single, standalone: &sseStream{}}
}

// open adds the stream for the responses to a POST, which sw sends.
func (t *streamSet) open(p *postedMessage, sw *streamWriter) *sseStream {
	st := &sseStream{
		unanswered: p.requestIDs, lease: p.lease, writer: sw,
		jsonOnly: p.accept == acceptJSON, isBatch: p.m.Kind() == wire.Batch,
	}
	st.lease.retain()
	if t.openRequests == nil {
		t.openRequests = make(map[wire.ID]*sseStream)
	}
	for _, id := range p.requestIDs {
		t.openRequests[id] = st
	}
	return st
}

// route returns the stream for a message; nil = none.
func (t *streamSet) route(m wire.Message, relatedTo wire.ID) *sseStream {
	if t.single {
		return t.standalone
	}
	switch m.Kind() {
	case wire.Response:
		return t.openRequests[m.ID()]
	case wire.Batch:
		if st := t.openRequests[relatedTo]; st != nil {
			return st
		}
		for _, text := range m.Elements() {
			response, _ := wire.Parse(text) // has an id even if it nests too deep for Parse
			if st := t.openRequests[response.ID()]; st != nil {
				return st
			}
		}
		return nil
	}
	st := t.openRequests[relatedTo]
	if st == nil || st.resumption == abandoned || st.jsonOnly ||
		m.Kind() == wire.Request && st.writer == nil && t.standalone.writer != nil {
		// A server request needs a reader, so it goes to the standalone stream if only the
		// standalone stream has a reader.
		return t.standalone
	}
	return st
}

// write appends a message to the stream that route has returned. The requests to which the message
// responds are answered.
func (t *streamSet) write(st *sseStream, m wire.Message) {
	switch m.Kind() {
	case wire.Response:
		st.hasResponse = true
		t.markAnswered(st, m.ID())
	case wire.Batch:
		st.hasResponse = true
		for _, id := range slices.Clone(st.unanswered) {
			t.markAnswered(st, id)
		}
	}
	t.append(st, m.Text())
}

// markAnswered removes a request from the unanswered requests of st. The stream is done when no
// unanswered request is left.
func (t *streamSet) markAnswered(st *sseStream, id wire.ID) {
	i := slices.Index(st.unanswered, id)
	if i < 0 {
		return
	}
	st.unanswered = slices.Delete(st.unanswered, i, i+1)
	if delete(t.openRequests, id); len(t.openRequests) == 0 {
		t.openRequests = nil // saves memory: many sessions are idle for hours
	}
	if st.done = len(st.unanswered) == 0; st.done {
		st.releaseLease()
	}
}

// cancel ends the stream of a request that will not get a response.
func (t *streamSet) cancel(id wire.ID) {
	st := t.openRequests[id]
	if st == nil {
		return
	}
	t.markAnswered(st, id)
	switch {
	case st.done && st.writer != nil:
		st.writer.wake()
	case st.done:
		// The client neither reads the stream nor will resume it. Its server requests may belong to
		// another call of the client, because not every backend identifies the call.
		for _, text := range st.events[st.sent:] {
			if m, err := wire.Parse(text.Bytes()); err == nil && m.Kind() == wire.Request {
				t.append(t.standalone, text)
			}
		}
		t.abandon(st)
	}
}

// account adds (sign = 1) or subtracts (sign = -1) the bytes of st. Every change of st is bracketed
// by a subtraction and an addition.
func (t *streamSet) account(st *sseStream, sign int) {
	t.retained += sign * st.retained
	if st.writer != nil {
		t.unsent += sign * st.unsent
	} else {
		t.retained += sign * st.unsent
	}
}

// append appends a message to a stream and wakes its writer.
func (t *streamSet) append(st *sseStream, text wire.Text) {
	if st.resumption == abandoned {
		return
	}
	t.account(st, -1)
	st.append(text)
	t.account(st, 1)
	if st.writer != nil {
		st.writer.wake()
	}
}

func (t *streamSet) seek(st *sseStream, n int) {
	t.account(st, -1)
	st.seek(n)
	t.account(st, 1)
}

func (t *streamSet) drop(st *sseStream, n int) {
	t.account(st, -1)
	st.drop(n)
	t.account(st, 1)
}

// abandon drops all events of a stream and removes the stream from the resumable streams. The
// requests of the stream stay open until they are answered.
func (t *streamSet) abandon(st *sseStream) {
	st.resumption = abandoned
	t.drop(st, len(st.events))
	if i := slices.Index(t.numbered, st); i >= 0 {
		t.numbered = slices.Delete(t.numbered, i, i+1)
		t.retained -= streamOverhead
	}
}

// attach makes sw the writer of a stream; nil = no writer. The previous exchange of the stream
// ends, even in the middle of an event.
func (t *streamSet) attach(st *sseStream, sw *streamWriter) {
	t.account(st, -1)
	if st.writer != nil {
		st.writer.setFinalDeadline(0)
		st.writer.wake()
	}
	st.writer = sw
	t.account(st, 1)
}

// detach ends the exchange sw of a stream, unless another exchange has replaced it. Unsent events
// are retained if the client can resume the stream.
func (t *streamSet) detach(st *sseStream, sw *streamWriter) {
	if st.writer != sw {
		return
	}
	t.account(st, -1)
	st.writer = nil
	t.account(st, 1)
	if st != t.standalone && st.resumption != resumable {
		t.abandon(st)
	}
}

// next marks the previous batch as sent and returns the next batch, which reuses the memory of the
// previous one, with the number of its first event. more is false if no events will follow the
// batch, or if sw no longer sends the stream.
func (t *streamSet) next(
	st *sseStream, sw *streamWriter, previous []wire.Text,
) (batch []wire.Text, first int, more bool) {
	if st.writer != sw {
		return nil, 0, false
	}
	if n := len(previous); n > 0 {
		st.resumption = resumable
		t.seek(st, st.sent+n)
		if t.single || t.closed {
			t.drop(st, st.sent)
		}
	}
	batch, first = st.batch(previous)
	return batch, first, !st.done
}

// close ends all streams. The unanswered requests get errors, and connected clients still get the
// unsent events. Nothing is retained.
func (t *streamSet) close() {
	t.closed = true
	for _, st := range t.openRequests {
		if !st.done { // a batch has several entries
			t.failUnanswered(st)
		}
	}
	for _, st := range append(t.numbered, t.standalone) {
		t.finish(st)
	}
	t.openRequests, t.numbered = nil, nil
}

// failUnanswered ends the unanswered requests of a stream with an error. Requests that were not
// delivered get an HTTP status instead; see finishUndelivered.
func (t *streamSet) failUnanswered(st *sseStream) {
	if st.delivered {
		var all []wire.Message
		for _, id := range st.unanswered {
			all = append(all, wire.NewErrorResponse(id, errSessionEnded))
		}
		response := all[0]
		if st.isBatch {
			response = wire.NewBatch(all)
		}
		t.append(st, response.Text())
		st.hasResponse = true
	}
	st.releaseLease()
	t.finish(st)
}

var errSessionEnded = wire.Errorf(wire.CodeInternalError,
	"The session has ended; outcome unknown: the call may have run")

// finish ends a stream of a closed set.
func (t *streamSet) finish(st *sseStream) {
	st.done = true
	if st.writer != nil {
		t.closing = append(t.closing, st)
		st.writer.setFinalDeadline(closeDrainTimeout)
		st.writer.wake()
	}
}

// disconnect drops the unsent events of connected clients and ends the exchanges that send them.
func (t *streamSet) disconnect() {
	all := slices.Concat(t.numbered, t.closing, []*sseStream{t.standalone})
	for _, st := range t.openRequests {
		all = append(all, st)
	}
	for _, st := range all {
		if st.writer != nil && st.unsent > 0 {
			t.attach(st, nil)
			t.abandon(st)
			st.cutOff = true
		}
	}
}
