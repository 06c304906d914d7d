package reload

import (
	"os"
	"syscall"
	"testing"
)

// SIGHUP is delivered to a subscriber, and ends the process without one: before Subscribe, after
// release, and if stdin is a terminal.
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
	told, release := h.Subscribe(pipe)
	for range 3 { // unread signals are merged
		if !h.Deliver() {
			t.Error("not delivered")
		}
	}
	<-told
	select {
	case <-told:
		t.Error("delivered twice")
	default:
	}
	release()
	if h.Deliver() {
		t.Error("delivered after release")
	}
	if told, _ := h.Subscribe(terminal); told != nil || h.Deliver() {
		t.Error("subscribed with a terminal")
	}
	if told, release := (*SIGHUP)(nil).Subscribe(pipe); told != nil {
		t.Error("subscribed without a SIGHUP")
	} else {
		release()
	}
}
