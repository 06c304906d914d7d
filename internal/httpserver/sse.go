package httpserver

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// keepAliveInterval is the maximum silence on an open stream. Proxies close silent connections
// after 60 s or more.
const keepAliveInterval = 15 * time.Second

// sseRetryMillis is the SSE retry field: the delay before a client resumes a broken stream.
const sseRetryMillis = "1000"

// maxEventBatch bounds the bytes of the events that are written before they count as sent. The last
// event of a batch may exceed the bound.
const maxEventBatch = 64 << 10

func beginSSE(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
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

// streamEvents sends the events of st until st is complete, another exchange takes over, or the
// client disconnects. Then it ends the exchange. prime is the id of the priming event, an event
// with empty data; "" = no priming event. streamEvents returns false if the client disconnected
// before the end.
func (s *httpSession) streamEvents(
	ctx context.Context, st *sseStream, sw *streamWriter, prime string,
) bool {
	defer s.endExchange(st, sw)
	timer := time.NewTimer(keepAliveInterval)
	defer timer.Stop()
	head := []byte{}
	if prime != "" {
		head = append(append(head, "id: "...), prime...)
		head = append(head, "\nretry: "+sseRetryMillis+"\ndata: \n\n"...)
	}
	if sw.writeAndFlush(head) != nil { // flushes the HTTP header even if head is empty
		return false
	}
	var batch [][]byte
	var first int
	for more := true; ; {
		batch, first, more = s.nextEvents(st, sw, batch)
		switch {
		case len(batch) > 0:
			if sw.writeEvents(batch, s.eventIDPrefix(st), first) != nil {
				return false
			}
		case !more:
			return true
		default:
			select {
			case <-sw.wakeup:
				continue
			case <-timer.C:
				if sw.writeAndFlush([]byte(": keep-alive\n\n")) != nil {
					return false
				}
			case <-ctx.Done():
				return false
			}
		}
		timer.Reset(keepAliveInterval)
	}
}

// eventIDPrefix returns the prefix of the event ids of st; "" = the events have no ids.
func (s *httpSession) eventIDPrefix(st *sseStream) string {
	if s.httpSSE || st.number == 0 && st != s.standalone {
		return ""
	}
	return strconv.Itoa(st.number) + "-"
}

// nextEvents marks the previous batch as sent and returns the next batch, which reuses the memory
// of the previous one, with the number of its first event. more is false if no events will follow
// the batch, or if sw no longer sends the stream.
func (s *httpSession) nextEvents(
	st *sseStream, sw *streamWriter, previous [][]byte,
) (batch [][]byte, first int, more bool) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	if st.writer != sw {
		return nil, 0, false
	}
	if n := len(previous); n > 0 {
		st.resumable = true
		s.seekLocked(st, st.sent+n)
		if s.httpSSE || s.closed {
			s.dropEventsLocked(st, st.sent)
		}
	}
	clear(previous)
	batch, size := previous[:0], 0
	for _, text := range st.events[st.sent:] {
		if batch, size = append(batch, text), size+eventSize(text); size >= maxEventBatch {
			break
		}
	}
	return batch, st.firstEventNo + st.sent, !st.done
}
