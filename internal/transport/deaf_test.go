//go:build unix

package transport

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A far side may leave unread what it likes for as long as it stirs, or nothing waits.
func TestAFarSideThatDoesNotReadIsToldFromABusyOne(t *testing.T) {
	const patience = 10 * time.Second
	take := func(r io.Reader, n int) {
		if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
			panic(err)
		}
	}
	for name, tt := range map[string]struct {
		play func(r io.Reader, o *outbox)
		deaf time.Duration // when, 0 = never
	}{
		"reads nothing":          {func(io.Reader, *outbox) {}, patience},
		"begins, and then stops": {func(r io.Reader, _ *outbox) { take(r, 100) }, patience},
		"reads slowly": {func(r io.Reader, _ *outbox) {
			for range 16 {
				time.Sleep(9 * time.Second)
				take(r, 64<<10)
			}
		}, 16*9*time.Second + 2*patience - 4*time.Second},
		"says something": {func(_ io.Reader, o *outbox) {
			time.Sleep(9 * time.Second)
			o.stirs.Add(1)
		}, 2 * patience},
		"reads all, and then again nothing": {func(r io.Reader, o *outbox) {
			time.Sleep(9 * time.Second)
			take(r, 4<<20)
			synctest.Wait()
			time.Sleep(time.Hour)
			_ = o.send(numbered(1, 10))
		}, 9*time.Second + time.Hour + patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				o := newOutbox(w, nil, 8<<20)
				began, deaf := time.Now(), time.Duration(0)
				o.patience, o.deaf = patience, func() { deaf = time.Since(began) }
				_ = o.send(numbered(0, 4<<20-len(numbered(0, 0).Raw())-1)) // 4 MiB with its line end
				tt.play(r, o)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if deaf != tt.deaf {
					t.Errorf("given up after %v, want %v", deaf, tt.deaf)
				}
				r.Close()
				w.Close()
				o.close()
			})
		})
	}
}

func TestNothingThatWaitsIsNoReasonToGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := newOutbox(w, nil, 8<<20)
		o.patience, o.deaf = time.Second, func() { t.Error("given up") }
		go func() { _, _ = io.Copy(io.Discard, r) }()
		for i := range 100 {
			_ = o.send(numbered(i, i<<10))
			time.Sleep(time.Duration(i) * time.Minute)
		}
		w.Close()
		o.close()
	})
}

// FRAME-08: the conversation with a child that does not read ends, and says so; not so with one
// that has taken everything and is busy.
func TestFRAME08AChildThatDoesNotReadIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	c := shell(say + "say 0; exec sleep 60")
	c.Patience = 300 * time.Millisecond
	p := spawn(t, c)
	number(t, p)
	began := time.Now()
	for i := range 3 {
		if err := p.Write(numbered(i, 200<<10), ""); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := p.Read()
	if took := time.Since(began); err == nil || !strings.HasPrefix(err.Error(), "it does not read: for 300ms ") || took < c.Patience || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	c = shell(say + "read -r l; sleep 1; say 0; sleep 60")
	c.Patience = 300 * time.Millisecond
	busy := spawn(t, c)
	for i := range 3 {
		if err := busy.Write(numbered(i, 100), ""); err != nil {
			t.Fatal(err)
		}
	}
	number(t, busy)
}
