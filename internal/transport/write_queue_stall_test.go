//go:build unix

package transport

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A reader may leave bytes unread as long as it makes progress or sends something.
func TestAStalledReaderIsDistinguishedFromASlowOne(t *testing.T) {
	const stallTimeout = 10 * time.Second
	take := func(r io.Reader, n int) {
		if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
			panic(err)
		}
	}
	for name, tt := range map[string]struct {
		play    func(r io.Reader, o *WriteQueue)
		stalled time.Duration // time of OnStall; 0 = never
	}{
		"reads nothing":          {func(io.Reader, *WriteQueue) {}, stallTimeout},
		"begins, and then stops": {func(r io.Reader, _ *WriteQueue) { take(r, 100) }, stallTimeout},
		"reads slowly": {func(r io.Reader, _ *WriteQueue) {
			for range 16 {
				time.Sleep(9 * time.Second)
				take(r, 64<<10)
			}
		}, 16*9*time.Second + 2*stallTimeout - 4*time.Second},
		"sends something": {func(_ io.Reader, o *WriteQueue) {
			time.Sleep(9 * time.Second)
			o.MarkProgress()
		}, 2 * stallTimeout},
		"reads all, and then again nothing": {func(r io.Reader, o *WriteQueue) {
			time.Sleep(9 * time.Second)
			take(r, 4<<20)
			synctest.Wait()
			time.Sleep(time.Hour)
			_ = o.Send(numbered(1, 10))
		}, 9*time.Second + time.Hour + stallTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				o := newWriteQueue(w, nil, 8<<20)
				began, stalled := time.Now(), time.Duration(0)
				o.stall.timeout = stallTimeout
				o.stall.onStall = func() { stalled = time.Since(began) }
				// 4 MiB with its line end
				_ = o.Send(numbered(0, 4<<20-len(numbered(0, 0).Raw())-1))
				tt.play(r, o)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if stalled != tt.stalled {
					t.Errorf("stalled after %v, want %v", stalled, tt.stalled)
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
		o.stall.timeout, o.stall.onStall = time.Second, func() { t.Error("OnStall was called") }
		go func() { _, _ = io.Copy(io.Discard, r) }()
		for i := range 100 {
			_ = o.Send(numbered(i, i<<10))
			time.Sleep(time.Duration(i) * time.Minute)
		}
		w.Close()
		o.Close()
	})
}
