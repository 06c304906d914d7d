package httpserver

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

// A streamWriter is the HTTP exchange that sends a stream.
type streamWriter struct {
	w      http.ResponseWriter
	wakeup chan struct{} // capacity 1
	// endsWithToken is true if the exchange ends when the access token of the client expires.
	endsWithToken bool

	mu    sync.Mutex
	final bool // a deadline for all remaining writes is set
}

func newStreamWriter(w http.ResponseWriter) *streamWriter {
	return &streamWriter{w: w, wakeup: make(chan struct{}, 1)}
}

// wake wakes the exchange, which then checks its stream.
func (sw *streamWriter) wake() {
	select {
	case sw.wakeup <- struct{}{}:
	default:
	}
}

// setFinalDeadline sets the deadline for all remaining writes. The exchange must be attached, so
// that the ResponseWriter is still in use.
func (sw *streamWriter) setFinalDeadline(d time.Duration) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.final = true
	_ = http.NewResponseController(sw.w).SetWriteDeadline(time.Now().Add(d))
}

// removeFinalDeadline removes the deadline that setFinalDeadline has set. The exchange must still
// be attached, and setFinalDeadline must not be called afterwards.
func (sw *streamWriter) removeFinalDeadline() {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.final {
		_ = http.NewResponseController(sw.w).SetWriteDeadline(time.Time{})
	}
}

// extendDeadline sets a deadline that suffices to read size bytes. If size is 0, it removes the
// deadline: with HTTP/2, an expired deadline ends a stream even if nothing is being sent.
// extendDeadline does nothing after setFinalDeadline.
func (sw *streamWriter) extendDeadline(size int) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.final {
		return
	}
	var until time.Time
	if size > 0 {
		until = time.Now().Add(transferTimeout(int64(size)))
	}
	_ = http.NewResponseController(sw.w).SetWriteDeadline(until)
}

// waitForWake waits until the method wake is called or timeout has passed. It returns false if the
// client has disconnected.
func (sw *streamWriter) waitForWake(ctx context.Context, timeout time.Duration) bool {
	select {
	case <-sw.wakeup: // without a timer, because most responses are ready
		return ctx.Err() == nil
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-sw.wakeup:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// writeEvents writes messages as events, without ids if prefix is "". It fails if the client does
// not read the events in time; see [transferTimeout].
func (sw *streamWriter) writeEvents(batch []wire.Text, prefix string, number int) error {
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
		for _, part := range [][]byte{
			head, withoutLineBreaks(text[0]), withoutLineBreaks(text[1]), blankLine,
		} {
			if _, err := sw.w.Write(part); err != nil {
				return err
			}
		}
	}
	return http.NewResponseController(sw.w).Flush()
}

var blankLine = []byte("\n\n")

func (sw *streamWriter) writeAndFlush(text []byte) error {
	sw.extendDeadline(len(text) + eventOverhead)
	defer sw.extendDeadline(0)
	if _, err := sw.w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(sw.w).Flush()
}

// withoutLineBreaks replaces line breaks by spaces, because a line break would end the data line of
// an event. In JSON, line breaks occur only between tokens; see [wire.Message.OneLine].
func withoutLineBreaks(text []byte) []byte {
	// Two calls of IndexByte are ten times faster than ContainsAny.
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	return bytes.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, text)
}
