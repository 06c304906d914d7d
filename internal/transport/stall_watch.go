package transport

import (
	"sync"
	"sync/atomic"
	"time"
)

// A stallWatch calls onStall when the remote side makes no progress for the time timeout between
// start and stop. All methods may be called concurrently.
type stallWatch struct {
	timeout  time.Duration // 0 = no watch
	onStall  func()
	progress atomic.Int64 // incremented when the remote side reads queued bytes or sends something

	mu      sync.Mutex
	running bool
	last    int64       // value of progress at the time lastAt
	lastAt  time.Time   // time of the last check with progress, or of start
	timer   *time.Timer // calls check
}

// start begins to watch, when bytes begin to queue.
func (w *stallWatch) start() {
	if w.timeout == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running, w.last, w.lastAt = true, w.progress.Load(), time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout, w.check)
	} else {
		w.timer.Reset(w.timeout)
	}
}

// stop ends the watch, when no bytes are queued.
func (w *stallWatch) stop() {
	if w.timeout == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		w.running = false
		w.timer.Stop()
	}
}

func (w *stallWatch) check() {
	w.mu.Lock()
	if !w.running {
		w.mu.Unlock()
		return
	}
	if now := w.progress.Load(); now != w.last {
		w.last, w.lastAt = now, time.Now()
	}
	left := w.timeout - time.Since(w.lastAt)
	if left > 0 {
		w.timer.Reset(left)
	}
	w.mu.Unlock()
	if left <= 0 {
		w.onStall()
	}
}
