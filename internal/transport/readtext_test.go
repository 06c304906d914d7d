package transport

import (
	"errors"
	"io"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadText(t *testing.T) {
	const limit = 100 << 10
	ways := map[string]func(io.Reader) io.Reader{
		"as it comes":   func(r io.Reader) io.Reader { return r },
		"in bytes":      iotest.OneByteReader,
		"its end along": iotest.DataErrReader,
	}
	for _, n := range []int{0, 1, 4095, 4096, 4097, 70_000, limit, limit + 1, 3 * limit} {
		text := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		for name, way := range ways {
			for _, announced := range []int64{-1, 0, int64(n) / 2, int64(n), 2 * int64(n),
				1 << 40} {
				got, err := ReadText(way(strings.NewReader(text)), announced, 4<<10, limit, nil)
				if n <= limit && string(got) != text || n > limit && len(got) <= limit ||
					err != nil {
					t.Errorf("%d bytes, %s, announced as %d: got %d bytes, %v", n, name, announced,
						len(got), err)
				}
				if cap(got) > max(4<<10, 4*n+1) || cap(got) > limit+1 {
					t.Errorf("%d bytes, %s, announced as %d: allocated %d", n, name, announced,
						cap(got))
				}
			}
		}
	}
	broken := errors.New("broken")
	if _, err := ReadText(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)), 2,
		4<<10, limit, nil); err != broken {
		t.Errorf("got %v for a text that breaks off", err)
	}
}

// A text of announced length is read with one allocation if the length is trusted. Otherwise there
// are five: for the text, and for the first and last chunks. The chunks between are used again.
func TestAllocations_OfATextRead(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would drop unused chunks
	for trusted, most := range map[int]float64{2 << 20: 1, 4 << 10: 5 + racePoolMisses} {
		from := strings.NewReader(text)
		got := testing.AllocsPerRun(20, func() {
			from.Reset(text)
			if _, err := ReadText(from, 1<<20, trusted, 4<<20, nil); err != nil {
				t.Fatal(err)
			}
		})
		if got > most {
			t.Errorf("with %d trusted bytes: %v allocations", trusted, got)
		}
	}
}
