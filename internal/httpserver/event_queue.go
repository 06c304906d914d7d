package httpserver

import "mcpgateway/internal/wire"

// An eventQueue contains the messages of one HTTP response. Events are numbered from 1. Events that
// were sent stay in the queue until the method drop removes them, because they might not have
// arrived. The zero value is empty.
type eventQueue struct {
	events   []wire.Text
	dropped  int // number of dropped events; events[0] has the number dropped+1
	sent     int // number of events already sent
	retained int // bytes of sent events
	unsent   int // bytes of unsent events
}

// Bytes counted for an event and a stream, in addition to the text.
const (
	eventOverhead  = 64
	streamOverhead = 512
)

func eventSize(text wire.Text) int { return text.Len() + eventOverhead }

// minUncopied is the minimum length, in bytes, of an event that is queued without a copy.
const minUncopied = 4 << 10

// append appends text as an unsent event. It copies a short text, which may be part of a longer
// one. Other texts may keep the whole chunk of 64 KiB in memory that they were read into, so the
// queue takes at most 16 times the bytes that it counts.
func (q *eventQueue) append(text wire.Text) {
	if text.Len() < minUncopied {
		text = text.Clone()
	}
	q.events = append(q.events, text)
	q.unsent += eventSize(text)
}

// seek sets the number of sent events to n.
func (q *eventQueue) seek(n int) {
	for ; q.sent < n; q.sent++ {
		q.retained += eventSize(q.events[q.sent])
		q.unsent -= eventSize(q.events[q.sent])
	}
	for ; q.sent > n; q.sent-- {
		q.retained -= eventSize(q.events[q.sent-1])
		q.unsent += eventSize(q.events[q.sent-1])
	}
}

// drop removes the first n events.
func (q *eventQueue) drop(n int) {
	for i, text := range q.events[:n] {
		if i < q.sent {
			q.retained -= eventSize(text)
		} else {
			q.unsent -= eventSize(text)
		}
	}
	clear(q.events[:n])
	q.events = q.events[n:]
	q.dropped += n
	q.sent = max(q.sent-n, 0)
}

// maxEventBatch bounds the bytes of the events that are written before they count as sent. The last
// event of a batch may exceed the bound.
const maxEventBatch = 64 << 10

// batch returns the next unsent events, in the memory of buffer, and the number of the first one.
func (q *eventQueue) batch(buffer []wire.Text) (batch []wire.Text, first int) {
	clear(buffer)
	batch, size := buffer[:0], 0
	for _, text := range q.events[q.sent:] {
		if batch, size = append(batch, text), size+eventSize(text); size >= maxEventBatch {
			break
		}
	}
	return batch, q.dropped + q.sent + 1
}
