package reload

import (
	"os"
	"syscall"
	"testing"
)

// SIGHUP is delivered to a subscriber. Without a subscriber it ends the process: before Subscribe,
// after release, and if stdin is a terminal.
func TestSIGHUP(t *testing.T) {
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	h := new(SIGHUP)
	if h.Deliver() {
		t.Error("delivered before Subscribe")
	}
	signals, release := h.Subscribe(pipe)
	for range 3 { // unread signals are merged
		if !h.Deliver() {
			t.Error("not delivered")
		}
	}
	<-signals
	select {
	case <-signals:
		t.Error("delivered twice")
	default:
	}
	release()
	if h.Deliver() {
		t.Error("delivered after release")
	}
	if signals, _ := h.Subscribe(terminal); signals != nil || h.Deliver() {
		t.Error("subscribed with a terminal")
	}
	if signals, release := (*SIGHUP)(nil).Subscribe(pipe); signals != nil {
		t.Error("subscribed without a SIGHUP")
	} else {
		release()
	}
}
