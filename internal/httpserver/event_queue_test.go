package httpserver

import (
	"bytes"
	"testing"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// Short events are parts of the chunks that a backend's messages were read in. The queue does not
// keep the chunks.
func TestEventQueueKeepsOnlyItsTexts(t *testing.T) {
	const chunk, events = 64 << 10, 256
	message := []byte(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
	var q eventQueue
	before := mcptest.LiveHeap()
	for range events {
		read := bytes.Repeat([]byte(" "), chunk)
		q.append(wire.Text{read[:copy(read, message)]})
	}
	if grown := mcptest.LiveHeap() - before; grown > events*chunk/8 {
		t.Errorf("%d bytes in memory for %d bytes counted", grown, q.unsent)
	}
	if got := q.events[0].Bytes(); !bytes.Equal(got, message) {
		t.Errorf("the event is %s", got)
	}
}
