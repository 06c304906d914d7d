package httpserver

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// keepAliveInterval is how long an open stream may be silent. Proxies cut at 60 s and
// more.
const keepAliveInterval = 15 * time.Second

// sseRetryMillis is after how many milliseconds a client should ask for the rest of a
// stream that has broken.
const sseRetryMillis = "1000"

// maxEventBatch is how much is sent before it counts as sent, in bytes; one event may
// be more.
const maxEventBatch = 64 << 10

func beginSSE(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}

// eventID is unique within a session, and tells which stream it is of.
func eventID(stream, number int) string {
	return strconv.Itoa(stream) + "-" + strconv.Itoa(number)
}

// parseEventID reads what eventID has written.
func parseEventID(id string) (stream, number int, ok bool) {
	a, b, _ := strings.Cut(id, "-")
	stream, errA := strconv.Atoi(a)
	number, errB := strconv.Atoi(b)
	return stream, number, errA == nil && errB == nil && stream >= 0 && number >= 0 && eventID(stream, number) == id
}

// streamEvents sends the events of a stream until it ends, another exchange takes it
// over or the client is gone, and then ends the exchange. Prime is the id of the
// event that it begins with, which has no data. It reports false if the client is gone before the end.
func (s *httpSession) streamEvents(ctx context.Context, st *sseStream, sw *streamWriter, prime string) bool {
	defer s.endExchange(st, sw)
	timer := time.NewTimer(keepAliveInterval)
	defer timer.Stop()
	head := []byte{}
	if prime != "" {
		head = append(append(append(head, "id: "...), prime...), "\nretry: "+sseRetryMillis+"\ndata: \n\n"...)
	}
	if sw.writeAndFlush(head) != nil { // flushed even if it is nothing: the headers go out
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

// eventIDPrefix returns what the ids of a stream's events begin with, "" if they have
// none.
func (s *httpSession) eventIDPrefix(st *sseStream) string {
	if s.httpSSE || st.number == 0 && st != s.standalone {
		return ""
	}
	return strconv.Itoa(st.number) + "-"
}

// nextEvents notes that the events of the batch before were sent and returns those
// that are to be sent now, in its place, and the number of the first. More says
// whether there will be any later.
func (s *httpSession) nextEvents(st *sseStream, sw *streamWriter, before [][]byte) (batch [][]byte, first int, more bool) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	if st.writer != sw {
		return nil, 0, false
	}
	if n := len(before); n > 0 {
		st.resumable = true
		s.seekLocked(st, st.sent+n)
		if s.httpSSE || s.closed {
			s.dropEventsLocked(st, st.sent)
		}
	}
	clear(before)
	batch, size := before[:0], 0
	for _, text := range st.events[st.sent:] {
		if batch, size = append(batch, text), size+eventSize(text); size >= maxEventBatch {
			break
		}
	}
	return batch, st.firstEventNo + st.sent, !st.done
}
