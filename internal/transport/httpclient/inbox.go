package httpclient

import (
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A readResult holds the results of one call of Read.
type readResult struct {
	m         wire.Message
	relatedTo wire.ID // request on whose stream m arrived; "" = none
	err       error
}

// An inbox passes messages and errors to the reader of a Conn, and reports requests that were sent
// again.
type inbox struct {
	results chan readResult // only deliver sends to it
	closed  chan struct{}   // closed by close

	onReconnect func(wire.ID) // see Options
}

func newInbox(onReconnect func(wire.ID)) inbox {
	if onReconnect == nil {
		onReconnect = func(wire.ID) {}
	}
	return inbox{results: make(chan readResult), closed: make(chan struct{}),
		onReconnect: onReconnect}
}

// next returns the next result that was passed to deliver. It returns ErrClosed after close, and
// ok = false if ended is closed first.
func (b *inbox) next(ended <-chan struct{}) (r readResult, ok bool) {
	closed := readResult{err: transport.ErrClosed}
	select {
	case <-b.closed:
		return closed, true
	default:
	}
	select {
	case r = <-b.results:
		return r, true
	case <-ended:
		return r, false
	case <-b.closed:
		return closed, true
	}
}

// deliver passes r to next. It waits until a call of next returns r, or the inbox is closed.
func (b *inbox) deliver(r readResult) {
	select {
	case b.results <- r:
	case <-b.closed:
	}
}

// close discards all further results. It must be called once.
func (b *inbox) close() { close(b.closed) }
