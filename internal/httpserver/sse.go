package httpserver

import (
	"bytes"
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

// writeEvents sends messages as events; without a prefix they have no ids. It fails if
// the client does not take them in time, see [transferTimeout].
func (sw *streamWriter) writeEvents(batch [][]byte, prefix string, number int) error {
	size := 0
	for _, text := range batch {
		size += eventSize(text)
	}
	sw.extendDeadline(size)
	defer sw.extendDeadline(0)
	var head []byte
	for i, text := range batch {
		head = append(head[:0], "event: message\n"...)
		if prefix != "" {
			head = append(append(head, "id: "...), prefix...)
			head = append(strconv.AppendInt(head, int64(number+i), 10), '\n')
		}
		head = append(head, "data: "...)
		for _, part := range [][]byte{head, withoutLineBreaks(text), blankLine} {
			if _, err := sw.w.Write(part); err != nil {
				return err
			}
		}
	}
	return http.NewResponseController(sw.w).Flush()
}

var blankLine = []byte("\n\n")

func (sw *streamWriter) writeAndFlush(text []byte) error {
	sw.extendDeadline(eventSize(text))
	defer sw.extendDeadline(0)
	if _, err := sw.w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(sw.w).Flush()
}

// withoutLineBreaks returns a message without line breaks, which end a line of an event.
// They stand between tokens only, see [wire.Message.OneLine].
func withoutLineBreaks(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 { // ContainsAny takes ten times as long
		return text
	}
	return bytes.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, text)
}
