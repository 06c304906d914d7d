package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxInlineBody is the maximum length of a body that is written before the response is read,
	// whatever time that takes. The buffers of both sockets hold such a body, so that the exchange
	// does not come to a standstill if the server sends a long response without reading the
	// request. The time to write a longer body is limited to inlineWriteTime; after that, another
	// goroutine writes the rest while the response is read.
	maxInlineBody   = 64 << 10
	inlineWriteTime = 10 * time.Millisecond
	// writeGrace is the time that the response has to arrive after the request could not be
	// written: a server that rejects a long body often closes the connection.
	writeGrace = time.Second
	// lastWriteWait is the time that the writing goroutine has to end after the response was read.
	lastWriteWait = 50 * time.Millisecond
)

// An exchange is one request on one connection, and its response.
type exchange struct {
	c     *pooledConn
	req   *http.Request
	trace *httptrace.ClientTrace

	stop      func() bool   // stops the closing of the connection when the context is done
	wrote     chan struct{} // closed when the request was written; nil = it is written
	writeErr  error         // valid when wrote is closed
	answered  bool          // a byte of the response has arrived
	keepAlive bool          // the connection may be used again after the response
}

// run sends the request and reads the headers of the response. If it fails, the connection is
// closed and the request is not being written any more.
func (x *exchange) run() (*http.Response, error) {
	c := x.c
	c.written = 0
	x.stop = context.AfterFunc(x.req.Context(), func() { c.Close() })
	if err := x.write(); err != nil {
		x.abandon()
		return nil, err
	}
	resp, err := x.readHeaders()
	if err != nil {
		select {
		case <-x.wrote: // a nil channel is never ready
			if x.writeErr != nil {
				err = x.writeErr
			}
		default:
		}
		x.abandon()
		return nil, err
	}
	x.keepAlive = !resp.Close && !x.req.Close && resp.StatusCode > 199
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		resp.Body = http.NoBody
		x.finish(false)
	case x.req.Method == http.MethodHead || resp.ContentLength == 0:
		x.finish(true)
	default:
		resp.Body = &responseBody{x: x, r: resp.Body, rest: resp.ContentLength}
	}
	return resp, nil
}

// write writes the request, or starts a goroutine that writes the rest of a long body. If the
// connection breaks after a part of the request was written, the error becomes writeErr.
func (x *exchange) write() error {
	long := x.req.ContentLength > maxInlineBody
	if long {
		x.c.SetWriteDeadline(time.Now().Add(inlineWriteTime))
	}
	w, err := newRequestWriter(x.c, x.req)
	if err == nil {
		err = w.run()
	}
	if long {
		x.c.SetWriteDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			x.wrote = make(chan struct{})
			go func() { x.endWrite(w.run()) }()
			return nil
		}
	}
	if _, broken := errors.AsType[*net.OpError](err); broken && x.c.written > 0 {
		x.wrote = make(chan struct{})
		x.endWrite(err)
		return nil
	}
	x.endWrite(err)
	return err
}

// endWrite records the result of writing the request. If the connection has broken, the response
// may have arrived before.
func (x *exchange) endWrite(err error) {
	closeBody(x.req)
	if x.trace.WroteRequest != nil {
		x.trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	if x.wrote == nil {
		return
	}
	x.writeErr = err
	_, broken := errors.AsType[*net.OpError](err)
	switch {
	case broken:
		x.c.SetReadDeadline(time.Now().Add(writeGrace))
	case err != nil:
		x.c.Close()
	}
	close(x.wrote)
}

// readHeaders reads the headers of the response. It skips informational responses, except 101,
// which must not be sent without a request for another protocol.
func (x *exchange) readHeaders() (*http.Response, error) {
	c := x.c
	c.headerBytes = c.t.o.MaxHeaderBytes
	if _, err := c.r.Peek(1); err != nil {
		return nil, err
	}
	x.answered = true
	for {
		resp, err := http.ReadResponse(c.r, x.req)
		switch {
		case err != nil && c.headerBytes <= 0:
			return nil, errHeaderTooLong
		case err != nil:
			return nil, fmt.Errorf("HTTP/1.x transport connection broken: %w", err)
		case resp.StatusCode > 199 || resp.StatusCode < 100,
			resp.StatusCode == http.StatusSwitchingProtocols:
			c.headerBytes = unlimited
			return resp, nil
		}
	}
}

// abandon closes the connection and waits for the end of the goroutine that writes the request.
func (x *exchange) abandon() {
	x.stop()
	x.c.Close()
	if x.wrote != nil {
		<-x.wrote
	}
}

// finish ends the exchange. complete is true if the whole response was read. The connection is kept
// if it can be used again.
func (x *exchange) finish(complete bool) {
	if complete && x.keepAlive && x.c.r.Buffered() == 0 && x.isWritten() && x.stop() {
		x.c.t.keep(x.c)
		return
	}
	x.abandon()
}

// isWritten reports whether the request was written completely.
func (x *exchange) isWritten() bool {
	if x.wrote == nil {
		return true
	}
	timeout := time.NewTimer(lastWriteWait)
	defer timeout.Stop()
	select {
	case <-x.wrote:
		return x.writeErr == nil
	case <-timeout.C:
		return false
	}
}

// A responseBody is the body of a response. Close may be called while Read waits.
type responseBody struct {
	x        *exchange
	closed   atomic.Bool // Close was called
	finished sync.Once   // guards exchange.finish

	mu   sync.Mutex
	r    io.Reader // body as decoded by net/http
	rest int64     // bytes that are missing; negative = unknown
	err  error     // error of the last Read
}

func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.rest -= int64(n)
	if err == nil {
		return n, nil
	}
	if ctx := b.x.req.Context(); err != io.EOF && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	b.err = err
	b.finished.Do(func() { b.x.finish(err == io.EOF) })
	return n, err
}

// Close ends the exchange. If the rest of the body is not in the buffer, the connection is closed.
func (b *responseBody) Close() error {
	b.closed.Store(true)
	b.finished.Do(func() {
		if !b.mu.TryLock() { // Read waits
			b.x.abandon()
			return
		}
		defer b.mu.Unlock()
		complete := false
		if b.rest >= 0 && b.rest <= int64(b.x.c.r.Buffered()) {
			n, err := io.Copy(io.Discard, b.r)
			complete = err == nil && n == b.rest
		}
		b.x.finish(complete)
	})
	return nil
}
