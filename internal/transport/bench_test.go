package transport

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// sizes are the sizes of the text in a message, in bytes.
var sizes = []int{32, 4 << 10, 64 << 10, 1 << 20}

func messageOfSize(n int) string {
	return `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` +
		strings.Repeat("x", n) + `"}]}}`
}

// A repeatingReader is a stream that repeats a text.
type repeatingReader struct {
	text string
	at   int
}

func (o *repeatingReader) Read(b []byte) (n int, _ error) {
	for n < len(b) && n < chunkSize { // like a pipe, it returns a limited number of bytes
		k := copy(b[n:min(len(b), chunkSize)], o.text[o.at:])
		n += k
		o.at = (o.at + k) % len(o.text)
	}
	return n, nil
}

func readerOfLines(n int) *LineReader {
	return &LineReader{r: &repeatingReader{text: messageOfSize(n) + "\n"}, limit: 4 << 20}
}

// discardingQueue returns a WriteQueue whose stream accepts all bytes at once.
func discardingQueue(tb testing.TB) *WriteQueue {
	o := newWriteQueue(io.Discard, io.Discard.Write, 64<<20)
	tb.Cleanup(o.Close)
	return o
}

func parse(tb testing.TB, text string) wire.Message {
	m, err := wire.Parse([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func bySize(b *testing.B, of func(b *testing.B, n int) func() error) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%d bytes", n), func(b *testing.B) {
			do := of(b, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLines measures reading and parsing a message, without a system call.
func BenchmarkLines(b *testing.B) {
	bySize(b, func(_ *testing.B, n int) func() error {
		l := readerOfLines(n)
		return func() error { _, err := l.ReadMessage(); return err }
	})
}

// BenchmarkWriteQueue measures writing a message.
func BenchmarkWriteQueue(b *testing.B) {
	bySize(b, func(b *testing.B, n int) func() error {
		o, m := discardingQueue(b), parse(b, messageOfSize(n))
		return func() error { return o.Send(m) }
	})
}

// Reading allocates new chunks and one small object for each line; writing allocates nothing. The
// bounds exceed the current number of allocations only slightly.
func TestAllocations(t *testing.T) {
	check := func(what string, n int, max float64, do func() error) {
		t.Helper()
		if got := testing.AllocsPerRun(10, func() {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}); got > max {
			t.Errorf("%s of %d bytes: %v allocations, not %v", what, n, got, max)
		}
	}
	for i, n := range sizes {
		many := min(1000, max(1, 100_000/n)) // because short lines share a chunk
		each := func(do func() error) func() error {
			return func() error {
				for range many {
					if err := do(); err != nil {
						return err
					}
				}
				return nil
			}
		}
		l := readerOfLines(n)
		check("lines", n, []float64{1004, 27, 5, 8 + racePoolMisses}[i],
			each(func() error { _, err := l.ReadMessage(); return err }))
		o, m := discardingQueue(t), parse(t, messageOfSize(n))
		check("sending", n, 0, func() error { return o.Send(m) })
	}
}
