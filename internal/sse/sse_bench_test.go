package sse

import (
	"fmt"
	"strings"
	"testing"
)

// An endlessReader is a stream that repeats a text.
type endlessReader struct {
	text string
	at   int
}

// Read returns at most 64 KiB, like a pipe.
func (e *endlessReader) Read(b []byte) (n int, _ error) {
	b = b[:min(len(b), 64<<10)]
	for n < len(b) {
		k := copy(b[n:], e.text[e.at:])
		n += k
		e.at = (e.at + k) % len(e.text)
	}
	return n, nil
}

// eventSizes are lengths of the text in an event, in bytes.
var eventSizes = []int{32, 4 << 10, 64 << 10, 1 << 20}

func eventsOf(n int) *Reader {
	r := NewReader(4<<20, nil)
	r.Open(&endlessReader{text: "event: message\nid: 1-17\n" +
		`data: {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` +
		strings.Repeat("x", n) + `"}]}}` + "\n\n"})
	return r
}

// BenchmarkEvents measures reading an event.
func BenchmarkEvents(b *testing.B) {
	for _, n := range eventSizes {
		b.Run(fmt.Sprintf("%d bytes", n), func(b *testing.B) {
			r := eventsOf(n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An event needs up to three allocations. The bounds exceed the current number of allocations only
// slightly.
func TestAllocations_OfEvents(t *testing.T) {
	for i, n := range eventSizes {
		many := min(1000, max(1, 100_000/n)) // short events share a buffer
		r, bound := eventsOf(n), []float64{2036, 78, 4, 4}[i]
		if got := testing.AllocsPerRun(10, func() {
			for range many {
				if _, err := r.Next(); err != nil {
					t.Fatal(err)
				}
			}
		}); got > bound {
			t.Errorf("%d events of %d bytes: %v allocations, at most %v are expected", many, n, got,
				bound)
		}
	}
}
