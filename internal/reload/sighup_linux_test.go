package reload

import (
	"os"
	"syscall"
	"testing"
)

// SIGHUP is told of while somebody has taken it over, and ends the process otherwise: before,
// after, and where it says that the terminal is gone.
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
		t.Error("somebody has taken it over")
	}
	told, release := h.Subscribe(pipe)
	for range 3 { // they are one while nobody looks
		if !h.Deliver() {
			t.Error("nobody has taken it over")
		}
	}
	<-told
	select {
	case <-told:
		t.Error("it is told of twice")
	default:
	}
	release()
	if h.Deliver() {
		t.Error("it is still taken over")
	}
	if told, _ := h.Subscribe(terminal); told != nil || h.Deliver() {
		t.Error("a terminal's is taken over")
	}
	if told, release := (*SIGHUP)(nil).Subscribe(pipe); told != nil {
		t.Error("none is taken over")
	} else {
		release()
	}
}
