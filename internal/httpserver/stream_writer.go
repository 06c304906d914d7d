package httpserver

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A streamWriter is the HTTP exchange that sends a stream.
type streamWriter struct {
	w      http.ResponseWriter
	wakeup chan struct{} // 1 slot

	mu    sync.Mutex
	final bool // it has a deadline for all that it still has to send
}

func newStreamWriter(w http.ResponseWriter) *streamWriter {
	return &streamWriter{w: w, wakeup: make(chan struct{}, 1)}
}

// wake has the exchange look at its stream again.
func (sw *streamWriter) wake() {
	select {
	case sw.wakeup <- struct{}{}:
	default:
	}
}

// setFinalDeadline sets the exchange a deadline. It must not have been detached, so that
// the ResponseWriter is still in use.
func (sw *streamWriter) setFinalDeadline(d time.Duration) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.final = true
	_ = http.NewResponseController(sw.w).SetWriteDeadline(time.Now().Add(d))
}

// extendDeadline gives the client time to take size bytes, and with none as long as it likes: of HTTP/2
// a deadline ends a stream on which nothing is sent, too.
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

// waitForWake waits until the stream has to be looked at, or until patience is over. It
// reports whether the client is still there.
func (sw *streamWriter) waitForWake(ctx context.Context, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-sw.wakeup:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
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
