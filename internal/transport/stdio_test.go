//go:build unix

package transport

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcpgateway/internal/wire"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// blocking returns the file in blocking mode, as a process inherits it.
func blocking(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd())) // Fd sets the blocking mode
	if err != nil {
		t.Fatal(err)
	}
	b := os.NewFile(uintptr(fd), f.Name())
	t.Cleanup(func() { b.Close() })
	return b
}

func TestStdioTransfersMessagesAndEndsWithItsInput(t *testing.T) {
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	c := Stdio(blocking(t, inR), blocking(t, outW), 1<<20)
	if _, err := io.WriteString(inW, note+"\n"); err != nil {
		t.Fatal(err)
	}
	m, _, err := c.Read()
	if err != nil || string(m.Raw()) != note {
		t.Fatalf("%s, %v", m.Raw(), err)
	}
	if err := c.Write(m, ""); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(outR).ReadString('\n'); err != nil || line != note+"\n" {
		t.Errorf("%q, %v", line, err)
	}
	inW.Close()
	if _, _, err := c.Read(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Close first writes the queued messages, then unblocks Read and restores the mode of the pipes.
func TestStdioClose(t *testing.T) {
	inR, _ := pipe(t)
	outR, outW := pipe(t)
	in, out := blocking(t, inR), blocking(t, outW)
	c := Stdio(in, out, 64<<20)
	read := make(chan error, 1)
	go func() {
		_, _, err := c.Read()
		read <- err
	}()
	big := strings.Repeat("x", 1<<20)
	if err := c.Write(numbered(1, len(big)), ""); err != nil {
		t.Fatal(err)
	}
	got := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, outR)
		got <- n
	}()
	c.Close()
	out.Close()
	outW.Close()
	if err := <-read; !errors.Is(err, ErrClosed) {
		t.Errorf("Read: %v", err)
	}
	if n := <-got; n < 1<<20 {
		t.Errorf("%d bytes were written", n)
	}
	if flags, err := unix.FcntlInt(in.Fd(), unix.F_GETFL, 0); err != nil ||
		flags&unix.O_NONBLOCK != 0 {
		t.Errorf("the pipe was left non-blocking: %x, %v", flags, err)
	}
}

// A client that does not read delays Close only for the documented time.
func TestStdioCloseWhenNobodyReads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	inR, _ := pipe(t)
	_, outW := pipe(t)
	c := Stdio(blocking(t, inR), blocking(t, outW), 64<<20)
	if err := c.Write(numbered(1, 1<<20), ""); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.Close()
	if took := time.Since(began); took < flushTimeout || took > 3*flushTimeout {
		t.Errorf("Close took %v", took)
	}
}

// A client that has closed its end of stdout counts as disconnected, even if another process, such
// as a child that has inherited stdin, keeps stdin open. The gateway used to run forever, and to
// execute calls without a receiver.
func TestStdioEndsWhenItsOutputIsClosed(t *testing.T) {
	inR, _ := pipe(t)
	outR, outW := pipe(t)
	c := Stdio(blocking(t, inR), blocking(t, outW), 1<<20)
	outR.Close()
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.Read()
		ended <- err
	}()
	if err := c.Write(numbered(1, 0), ""); err != ErrClosed {
		t.Errorf("Write: %v", err)
	}
	if err := <-ended; err != ErrClosed {
		t.Errorf("Read: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The client also counts as disconnected if the failed write was delayed, to the end of a burst or
// until the pipe is read, and no later write fails.
func TestStdioEndsWhenItsOutputIsClosedDuringAWrite(t *testing.T) {
	burst := new(wire.Burst)
	for how, tt := range map[string]struct {
		m    wire.Message
		shut func(outR *os.File)
	}{
		"coalesced": {numbered(1, 0).WithBurst(burst),
			func(outR *os.File) { outR.Close(); burst.End() }},
		"queued": {numbered(1, 1<<20), func(outR *os.File) { outR.Close() }},
	} {
		t.Run(how, func(t *testing.T) {
			inR, _ := pipe(t)
			outR, outW := pipe(t)
			out := blocking(t, outW)
			outW.Close()
			c := Stdio(blocking(t, inR), out, 1<<20)
			if err := c.Write(tt.m, ""); err != nil {
				t.Fatalf("Write: %v", err)
			}
			tt.shut(outR)
			if _, _, err := c.Read(); err != ErrClosed {
				t.Errorf("Read: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// If stdout shares its pipe with stderr, stdout stays in blocking mode because of other writers.
// Close returns nevertheless.
func TestStdioCloseOfABlockingPipe(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	inR, _ := pipe(t)
	_, outW := pipe(t)
	stderr := os.Stderr
	os.Stderr = blocking(t, outW)
	defer func() { os.Stderr = stderr }()
	c := Stdio(blocking(t, inR), blocking(t, outW), 64<<20)
	if err := c.Write(numbered(1, 1<<20), ""); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.Close()
	if took := time.Since(began); took > 3*flushTimeout {
		t.Errorf("Close took %v", took)
	}
}

// A terminal cannot be polled. It can be read nevertheless, and Close ends the reading.
func TestStdioCloseUnblocksATerminal(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	_, outW := pipe(t)
	c := Stdio(blocking(t, tty), outW, 1<<20)
	read := make(chan error, 1)
	go func() {
		_, _, err := c.Read()
		read <- err
	}()
	c.Close()
	if err := <-read; !errors.Is(err, ErrClosed) {
		t.Errorf("Read: %v", err)
	}
}
