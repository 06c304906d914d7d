package httpserver

import (
	"context"
	"net/http"
	"time"

	"mcpgateway/internal/wire"
)

// keepAliveInterval is the maximum silence on an open stream. Proxies close silent connections
// after 60 s or more.
const keepAliveInterval = 15 * time.Second

// sseRetryMillis is the SSE retry field: the delay before a client resumes a broken stream.
const sseRetryMillis = "1000"

func beginSSE(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}

// primingEvent returns an event with empty data, which gives the client an event id and sets the
// delay before it resumes a broken stream.
func primingEvent(id string) []byte {
	return []byte("id: " + id + "\nretry: " + sseRetryMillis + "\ndata: \n\n")
}

// sendEvents sends head, which may be empty, and then the events that next returns, until no events
// follow or the client disconnects. next marks the previous batch as sent and returns the next
// batch, which reuses the memory of the previous one, and the number of its first event; after an
// empty batch sendEvents waits for wake. The event ids begin with idPrefix; "" = no ids. sendEvents
// returns false if the client disconnected before the end.
func (sw *streamWriter) sendEvents(
	ctx context.Context, head []byte, idPrefix string,
	next func(previous []wire.Text) (batch []wire.Text, first int, more bool),
) bool {
	timer := time.NewTimer(keepAliveInterval)
	defer timer.Stop()
	if sw.writeAndFlush(head) != nil { // flushes the HTTP header even if head is empty
		return false
	}
	var batch []wire.Text
	var first int
	for more := true; ; {
		batch, first, more = next(batch)
		switch {
		case len(batch) > 0:
			if sw.writeEvents(batch, idPrefix, first) != nil {
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
