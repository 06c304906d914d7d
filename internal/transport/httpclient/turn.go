package httpclient

import (
	"context"
	"sync"
	"time"
)

// notificationTimeout is the maximum time for the POST of a notification or a response, and the
// maximum time that later messages wait until an earlier notification is accepted.
const notificationTimeout = maxRetryAfter

// A turn is the place of a message in the order in which messages are sent.
type turn struct {
	after       <-chan struct{} // closed when the message may be sent; nil = at once
	passed      chan struct{}   // closed by pass; nil = no message waits
	onPass      func()          // called by pass; may be nil
	passOnce    sync.Once
	written     chan struct{} // closed by markWritten
	writtenOnce sync.Once
}

// wait waits until ready is closed, and then, at most for notificationTimeout, until the message
// may be sent. It returns early if ctx is done.
func (t *turn) wait(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	if t.after == nil {
		return
	}
	timeout := time.NewTimer(notificationTimeout)
	defer timeout.Stop()
	select {
	case <-t.after:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// pass permits the sending of the messages that wait for this message, because this message was
// accepted or has failed. Calling it again does nothing.
func (t *turn) pass() {
	t.passOnce.Do(func() {
		if t.passed != nil {
			close(t.passed)
		}
		if t.onPass != nil {
			t.onPass()
		}
	})
}

// markWritten records that the message has been written, or will not be written.
func (t *turn) markWritten() { t.writtenOnce.Do(func() { close(t.written) }) }
