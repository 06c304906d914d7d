package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/wire"
)

func numbered(i, size int) wire.Message {
	return wire.NewNotification("n",
		fmt.Appendf(nil, `{"i":%d,"x":"%s"}`, i, strings.Repeat("x", size)))
}

// Lines are written completely and in order, whether the stream accepts them at once, in part or
// late.
func TestWriteQueueKeepsOrder(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := newWriteQueue(w, tryWriter(w), 1<<30)
	const n = 300
	sizes := []int{0, 10, 5000, maxCoalesced - 10, maxCoalesced + 10, 200 << 10}
	message := func(i int) wire.Message {
		m := numbered(i, sizes[i%len(sizes)])
		if i/len(sizes)%2 == 0 {
			return m
		}
		// The text of a long message is in two pieces.
		m = wire.NewRequest("1", "n", m.Part(wire.PartParams))
		return m.Splice(wire.Edit{Part: wire.PartID, Text: []byte(`"abc"`)})
	}
	for i := range n { // without a reader the pipe is soon full
		if err := o.Send(message(i)); err != nil {
			t.Fatal(err)
		}
	}
	in := bufio.NewReaderSize(r, 1<<20)
	for i := range n {
		line, err := in.ReadString('\n')
		if want := string(message(i).Raw()) + "\n"; err != nil || line != want {
			t.Fatalf("line %d: %v, %.60s", i, err, line)
		}
	}
	o.flush()
	if o.queue.size != 0 {
		t.Errorf("%d bytes are still queued", o.queue.size)
	}
	w.Close()
	o.Close()
}

// FRAME-08, FRAME-09: a stream that is not read never blocks a writer, and at the limit Send fails.
func TestFRAME_08_WriteNeverWaits(t *testing.T) {
	for name, try := range map[string]bool{"trying": true, "never trying": false} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			o := newWriteQueue(w, nil, 1<<20)
			if try {
				o.try = tryWriter(w)
			}
			sent := 0
			for err = nil; err == nil && sent < 100; sent++ {
				err = o.Send(numbered(sent, 100<<10))
			}
			if !errors.Is(err, ErrFull) {
				t.Errorf("after %d messages: %v", sent, err)
			}
			w.Close()
			o.Close() // must also not block
			if err := o.Send(numbered(0, 0)); !errors.Is(err, ErrClosed) &&
				!errors.Is(err, os.ErrClosed) {
				t.Errorf("after close: %v", err)
			}
		})
	}
}

// Queued short lines take no more memory than their bytes, because the limit is meant for memory.
func TestQueuedShortLinesTakeOnlyTheirBytes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := newWriteQueue(w, tryWriter(w), 8<<20)
	for sent := 0; err == nil; sent++ {
		err = o.Send(numbered(sent, 0))
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
	o.mu.Lock()
	held, parts := 0, len(o.queue.parts)
	for _, b := range o.queue.parts {
		held += cap(b)
	}
	waiting := o.queue.size
	o.mu.Unlock()
	if held > 3*waiting/2 || parts > 1000 {
		t.Errorf("%d bytes are queued in %d slices of %d bytes together", waiting, parts, held)
	}
	w.Close()
	o.Close()
}

func TestWriteQueueReportsAClosedStream(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	o := newWriteQueue(w, tryWriter(w), 1<<20)
	if err := o.Send(numbered(0, 10)); err == nil {
		t.Error("no error")
	}
	w.Close()
	o.Close()
}

func TestPipeEndsAfterTheWrittenMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		go func() {
			for i := range 3 {
				if err := a.Write(numbered(i, 0), ""); err != nil {
					t.Error(err)
				}
			}
			a.Close()
		}()
		for i := range 3 {
			if m, _, err := b.Read(); err != nil ||
				string(m.Raw()) != string(numbered(i, 0).Raw()) {
				t.Errorf("%s, %v", m.Raw(), err)
			}
		}
		if _, _, err := b.Read(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		if err := b.Write(numbered(9, 0), ""); !errors.Is(err, ErrClosed) {
			t.Errorf("write after the end: %v", err)
		}
		if _, _, err := a.Read(); !errors.Is(err, ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	})
}

// Bytes that the reader has read are subtracted at once from a long queue, so that a client that
// reads steadily is not treated like a client that does not read.
func TestReadBytesOfAQueueCountAtOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := newWriteQueue(w, tryWriter(w), 8<<20)
	for sent := 0; !o.Backlogged(); sent++ {
		if err := o.Send(numbered(sent, 10<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.CopyN(io.Discard, r, 1<<20-1<<18); err != nil {
		t.Fatal(err)
	}
	if o.Backlogged() {
		t.Error("it is backlogged though three quarters were read")
	}
	w.Close()
	o.Close()
}
