package httpserver

import (
	"net/http"
	"slices"
	"strconv"
)

// assignNumber makes st a numbered event stream, which can be resumed from now on.
func (t *streamSet) assignNumber(st *sseStream) {
	t.lastNumber++
	st.number = t.lastNumber
	t.numbered = append(t.numbered, st)
	t.retained += streamOverhead
}

// idPrefix returns the prefix of the event ids of st; "" = the events have no ids.
func (t *streamSet) idPrefix(st *sseStream) string {
	if t.single || st.number == 0 && st != t.standalone {
		return ""
	}
	return strconv.Itoa(st.number) + "-"
}

// resume attaches sw to the rest of a stream, after the event lastSeen, even if the broken
// connection still seems to be open. It returns an error if lastSeen is not an event of the
// session, or if the events after it are not retained.
func (t *streamSet) resume(sw *streamWriter, lastSeen string) (*sseStream, *httpError) {
	number, event, ok := parseEventID(lastSeen)
	if !ok || number > t.lastNumber {
		return nil, newHTTPError(http.StatusBadRequest,
			"Invalid Last-Event-ID: no event of this session has it")
	}
	st := t.byNumber(number)
	switch {
	case st == nil || event < st.dropped:
		return nil, newHTTPError(http.StatusGone,
			"The events after this Last-Event-ID are no longer available")
	case event > st.dropped+len(st.events):
		return nil, newHTTPError(http.StatusBadRequest,
			"Invalid Last-Event-ID: no event of this session has it")
	}
	t.attach(st, sw)
	t.seek(st, event-st.dropped)
	return st, nil
}

// byNumber returns the stream with this number; nil = not retained.
func (t *streamSet) byNumber(number int) *sseStream {
	if number == 0 {
		return t.standalone
	}
	for _, st := range t.numbered {
		if st.number == number {
			return st
		}
	}
	return nil
}

// evict evicts retained data until at most limit bytes are retained, or until there is nothing to
// evict. It starts with the data that the client has most likely received:
//
//  1. complete streams that were sent completely, oldest first;
//  2. sent events of the other streams, oldest stream first;
//  3. events of the standalone stream, oldest first: sent events and, if no client reads the
//     stream, unsent events except the newest;
//  4. broken streams with unsent events, oldest first, except the newest.
//
// The limit can therefore be exceeded by the unsent events of one stream and one message of the
// standalone stream.
func (t *streamSet) evict(limit int) {
	for t.retained > limit && t.evictOne() {
	}
	if t.closed {
		t.retained = 0
	}
}

func (t *streamSet) evictOne() bool {
	for _, st := range t.numbered {
		if st.done && st.unsent == 0 && st.writer == nil {
			t.abandon(st)
			return true
		}
	}
	for _, st := range t.numbered {
		if st.sent > 0 {
			t.drop(st, 1)
			return true
		}
	}
	if a := t.standalone; a.sent > 0 || a.writer == nil && len(a.events) > 1 {
		t.drop(a, 1)
		return true
	}
	var oldest *sseStream
	for _, st := range t.numbered {
		if st.writer != nil || st.unsent == 0 {
			continue
		}
		if oldest != nil {
			t.abandon(oldest)
			return true
		}
		oldest = st
	}
	return false
}

// dropRetained drops all retained events.
func (t *streamSet) dropRetained() {
	for _, st := range slices.Clone(t.numbered) {
		if st.writer == nil {
			t.abandon(st)
		} else {
			t.drop(st, st.sent)
		}
	}
	if t.standalone.writer == nil {
		t.drop(t.standalone, len(t.standalone.events))
	} else {
		t.drop(t.standalone, t.standalone.sent)
	}
}
