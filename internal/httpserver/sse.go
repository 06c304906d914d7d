package httpserver

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// keepAlive is how long an open stream may be silent. Proxies cut at 60 s and
// more.
const keepAlive = 15 * time.Second

// comeBack is after how many milliseconds a client should ask for the rest of a
// stream that has broken.
const comeBack = "1000"

// maxBatch is how much is sent before it counts as sent, in bytes; one event may
// be more.
const maxBatch = 64 << 10

func beginEvents(w http.ResponseWriter) {
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

// pump sends the events of a stream until it ends, another exchange takes it
// over or the client is gone, and then ends the exchange. Prime is the id of the
// event that it begins with, which has no data. It reports false if the client is gone before the end.
func (s *session) pump(ctx context.Context, st *stream, x *reader, prime string) bool {
	defer s.leave(st, x)
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	head := []byte{}
	if prime != "" {
		head = append(append(append(head, "id: "...), prime...), "\nretry: "+comeBack+"\ndata: \n\n"...)
	}
	if x.send(head) != nil { // flushed even if it is nothing: the headers go out
		return false
	}
	var batch [][]byte
	var first int
	for more := true; ; {
		batch, first, more = s.next(st, x, batch)
		switch {
		case len(batch) > 0:
			if x.sendEvents(batch, s.prefix(st), first) != nil {
				return false
			}
		case !more:
			return true
		default:
			select {
			case <-x.wake:
				continue
			case <-timer.C:
				if x.send([]byte(": keep-alive\n\n")) != nil {
					return false
				}
			case <-ctx.Done():
				return false
			}
		}
		timer.Reset(keepAlive)
	}
}

// prefix returns what the ids of a stream's events begin with, "" if they have
// none.
func (s *session) prefix(st *stream) string {
	if s.legacy || st.number == 0 && st != s.alone {
		return ""
	}
	return strconv.Itoa(st.number) + "-"
}

// next notes that the events of the batch before were sent and returns those
// that are to be sent now, in its place, and the number of the first. More says
// whether there will be any later.
func (s *session) next(st *stream, x *reader, before [][]byte) (batch [][]byte, first int, more bool) {
	s.mu.Lock()
	defer s.unlock()
	if st.reader != x {
		return nil, 0, false
	}
	if n := len(before); n > 0 {
		st.known = true
		s.seekLocked(st, st.sent+n)
		if s.legacy || s.over {
			s.dropLocked(st, st.sent)
		}
	}
	clear(before)
	batch, size := before[:0], 0
	for _, text := range st.events[st.sent:] {
		if batch, size = append(batch, text), size+cost(text); size >= maxBatch {
			break
		}
	}
	return batch, st.first + st.sent, !st.done
}

// sendEvents sends messages as events; without a prefix they have no ids. It fails if
// the client does not take them in time, see [timeFor].
func (x *reader) sendEvents(batch [][]byte, prefix string, number int) error {
	size := 0
	for _, text := range batch {
		size += cost(text)
	}
	x.allow(size)
	defer x.allow(0)
	var head []byte
	for i, text := range batch {
		head = append(head[:0], "event: message\n"...)
		if prefix != "" {
			head = append(append(head, "id: "...), prefix...)
			head = append(strconv.AppendInt(head, int64(number+i), 10), '\n')
		}
		head = append(head, "data: "...)
		for _, part := range [][]byte{head, oneLine(text), blankLine} {
			if _, err := x.w.Write(part); err != nil {
				return err
			}
		}
	}
	return http.NewResponseController(x.w).Flush()
}

var blankLine = []byte("\n\n")

func (x *reader) send(text []byte) error {
	x.allow(cost(text))
	defer x.allow(0)
	if _, err := x.w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(x.w).Flush()
}

// oneLine returns a message without line breaks, which end a line of an event.
// They stand between tokens only, see [wire.Message.OneLine].
func oneLine(text []byte) []byte {
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
