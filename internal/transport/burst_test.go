package transport

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// pipedQueue returns a WriteQueue that writes to a pipe, and the other end of the pipe.
func pipedQueue(t testing.TB) (*WriteQueue, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := newWriteQueue(w, tryWriter(w), 64<<20)
	t.Cleanup(func() {
		w.Close()
		o.Close()
		r.Close()
	})
	return o, r
}

// paddedText is the text of paddedMessage.
func paddedText(i, size int) string {
	return `{"jsonrpc":"2.0","method":"m","params":{"i":` + strconv.Itoa(i) + `,"text":"` +
		strings.Repeat("x", size) + `"}}`
}

func paddedMessage(t testing.TB, i, size int) wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(paddedText(i, size)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The messages of a burst are written at the end of the burst, and not before.
func TestABurstIsWrittenInOneCall(t *testing.T) {
	o, r := pipedQueue(t)
	writes := 0
	try := o.try
	o.try = func(b []byte) (int, error) { writes++; return try(b) }
	burst := new(wire.Burst)
	for i := range 20 {
		if err := o.Send(paddedMessage(t, i, 10).WithBurst(burst)); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 0 {
		t.Errorf("%d writes before the end of the burst", writes)
	}
	burst.End()
	if writes != 1 {
		t.Errorf("%d writes for the burst", writes)
	}
	lines := bufio.NewReader(r)
	for i := range 20 {
		line, err := lines.ReadString('\n')
		if want := string(paddedMessage(t, i, 10).Raw()) + "\n"; line != want || err != nil {
			t.Fatalf("line %d: %q, %v", i, line, err)
		}
	}
	if err := o.Send(paddedMessage(t, 20, 10).WithBurst(burst)); err != nil || writes != 2 {
		t.Errorf("after the end: %v, %d writes", err, writes)
	}
}

// A message outside of a burst is written at once, after the coalesced lines.
func TestAMessageOutsideABurstFlushesCoalescedLines(t *testing.T) {
	o, r := pipedQueue(t)
	burst := new(wire.Burst)
	for i := range 2 {
		m := paddedMessage(t, i, 10)
		if i == 0 {
			m = m.WithBurst(burst)
		}
		if err := o.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewReader(r)
	for i := range 2 {
		if line, err := lines.ReadString('\n'); line != string(paddedMessage(t, i,
			10).Raw())+"\n" || err != nil {
			t.Fatalf("line %d: %q, %v", i, line, err)
		}
	}
	burst.End()
}

// Lines of all lengths keep their order in bursts, if the reader is slower than the writer.
func TestLinesKeepTheirOrderInBursts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	for _, size := range []int{10, 4 << 10, maxCoalesced - 10, maxCoalesced + 10, 200 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			o, r := pipedQueue(t)
			n := 200
			if size > 4*maxCoalesced {
				n = 70 // ten bursts: the race detector makes long lines slow
			}
			sent := make(chan error, 1)
			go func() {
				var burst *wire.Burst
				for i := range n {
					switch i % 7 {
					case 0:
						burst = new(wire.Burst)
					case 5:
						burst.End()
					case 6:
						burst = nil
					}
					if err := o.Send(paddedMessage(t, i, size+i%3).WithBurst(burst)); err != nil {
						sent <- err
						return
					}
				}
				burst.End()
				sent <- nil
			}()
			lines := bufio.NewReader(r)
			for i := range n {
				line, err := lines.ReadString('\n')
				if err != nil || line != paddedText(i, size+i%3)+"\n" {
					t.Fatalf("line %d: %.100q, %v", i, line, err)
				}
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

// Lines that are available at the same time form a burst, which ends when the reader must read
// again; a single line has no burst.
func TestLineReaderReportsBursts(t *testing.T) {
	const line = `{"jsonrpc":"2.0","method":"m"}` + "\n"
	r, w := io.Pipe()
	defer r.Close()
	l := LineReader{r: r, limit: 1 << 20}
	write := func(s string) {
		go func() { _, _ = io.WriteString(w, s) }()
	}
	write(line)
	if m, err := l.ReadMessage(); err != nil || m.Burst() != nil {
		t.Fatalf("alone: %v, %v", m.Burst(), err)
	}
	write(line + line + line[:5])
	first, _ := l.ReadMessage()
	second, err := l.ReadMessage()
	if err != nil || first.Burst() == nil || first.Burst() != second.Burst() {
		t.Fatalf("two at once: %p, %p, %v", first.Burst(), second.Burst(), err)
	}
	over := false
	if !second.Burst().OnEnd(func() { over = true }) || over {
		t.Fatal("the burst ended before its last message was processed")
	}
	write(line[5:])
	if third, err := l.ReadMessage(); err != nil || third.Burst() != nil || !over {
		t.Fatalf("the next one: %v, %v, over: %v", third.Burst(), err, over)
	}
	if first.Burst().OnEnd(func() {}) {
		t.Error("a burst that has ended accepts functions")
	}
	w.Close()
}
