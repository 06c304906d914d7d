//go:build unix

package transport

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A far side may leave unread what it likes for as long as it stirs, or nothing waits.
func TestAStalledReaderIsDistinguishedFromASlowOne(t *testing.T) {
	const patience = 10 * time.Second
	take := func(r io.Reader, n int) {
		if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
			panic(err)
		}
	}
	for name, tt := range map[string]struct {
		play func(r io.Reader, o *WriteQueue)
		deaf time.Duration // when, 0 = never
	}{
		"reads nothing":          {func(io.Reader, *WriteQueue) {}, patience},
		"begins, and then stops": {func(r io.Reader, _ *WriteQueue) { take(r, 100) }, patience},
		"reads slowly": {func(r io.Reader, _ *WriteQueue) {
			for range 16 {
				time.Sleep(9 * time.Second)
				take(r, 64<<10)
			}
		}, 16*9*time.Second + 2*patience - 4*time.Second},
		"says something": {func(_ io.Reader, o *WriteQueue) {
			time.Sleep(9 * time.Second)
			o.progress.Add(1)
		}, 2 * patience},
		"reads all, and then again nothing": {func(r io.Reader, o *WriteQueue) {
			time.Sleep(9 * time.Second)
			take(r, 4<<20)
			synctest.Wait()
			time.Sleep(time.Hour)
			_ = o.Send(numbered(1, 10))
		}, 9*time.Second + time.Hour + patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				o := newWriteQueue(w, nil, 8<<20)
				began, deaf := time.Now(), time.Duration(0)
				o.stallTimeout, o.onStall = patience, func() { deaf = time.Since(began) }
				_ = o.Send(numbered(0, 4<<20-len(numbered(0, 0).Raw())-1)) // 4 MiB with its line end
				tt.play(r, o)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if deaf != tt.deaf {
					t.Errorf("given up after %v, want %v", deaf, tt.deaf)
				}
				r.Close()
				w.Close()
				o.Close()
			})
		})
	}
}

func TestAnEmptyQueueDoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := newWriteQueue(w, nil, 8<<20)
		o.stallTimeout, o.onStall = time.Second, func() { t.Error("given up") }
		go func() { _, _ = io.Copy(io.Discard, r) }()
		for i := range 100 {
			_ = o.Send(numbered(i, i<<10))
			time.Sleep(time.Duration(i) * time.Minute)
		}
		w.Close()
		o.Close()
	})
}
