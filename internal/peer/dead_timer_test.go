package peer

import (
	"testing"
	"time"

	"mcpgateway/internal/wire"
)

// The timer of a connection that has ended is not started again by a call that is resumed late,
// because it would keep the Peer in memory.
func TestResumeAfterDisconnect_StartsNoTimer(t *testing.T) {
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	p := NewPush(nullWriter{}, ignoringHandler{}, Options{})
	c := &Call{Handler: make(ResponseChan, 1), Timeout: time.Hour}
	c.PauseTimeout()
	p.Send(m, c)
	p.Disconnected()
	c.ResumeTimeout()
	if timer := p.calls.timer; timer != nil && timer.Stop() {
		t.Error("the timer runs")
	}
}
