package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// terminal opens a terminal.
func terminal(t *testing.T) *os.File {
	t.Helper()
	tty, _ := terminalPair(t)
	return tty
}

// terminalPair opens a terminal, and the side of its person.
func terminalPair(t *testing.T) (tty, person *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var unlock, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value))); no != 0 {
			t.Fatal(no)
		}
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty, master
}

// SIGHUP is told of while somebody has taken it over, and ends the process otherwise: before, after, and where it
// says that the terminal is gone.
func TestHangups(t *testing.T) {
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	h := new(hangups)
	if h.pass() {
		t.Error("somebody has taken it over")
	}
	told, release := h.take(pipe)
	for range 3 { // they are one while nobody looks
		if !h.pass() {
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
	if h.pass() {
		t.Error("it is still taken over")
	}
	if told, _ := h.take(terminal(t)); told != nil || h.pass() {
		t.Error("a terminal's is taken over")
	}
	if told, release := (*hangups)(nil).take(pipe); told != nil {
		t.Error("none is taken over")
	} else {
		release()
	}
}
