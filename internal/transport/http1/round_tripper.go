package http1

import (
	"bufio"
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// Options configure a RoundTripper.
type Options struct {
	Addr string // host and port of the server
	// Dial opens a connection to Addr. nil = a [net.Dialer] with a timeout of 10 s.
	Dial           func(ctx context.Context, network, addr string) (net.Conn, error)
	MaxIdle        int           // connections that are kept for further requests
	IdleTimeout    time.Duration // an idle connection is closed after this time
	MaxHeaderBytes int           // bytes of the headers of a response, including those with 1xx
	BufferSize     int           // bytes of a read buffer; see also RoundTripper
}

// A RoundTripper sends requests to the server at Options.Addr, whatever the host of their URLs is.
// A request whose head and body together fit into Options.BufferSize is written in one piece.
//
// The requests must have a body of known length, or no body. The RoundTripper adds only the headers
// Host, Content-Length and, if Request.Close is set, Connection.
//
// A request is sent again only over another connection, and only if the server had closed the idle
// connection on which the request was sent: a request with GET, HEAD, OPTIONS or TRACE if no byte
// of a response has arrived, any other request if not a single byte of the request was written.
//
// The hooks GetConn, GotConn and WroteRequest of a [httptrace.ClientTrace] are called as by the
// Transport of net/http, and so are the hooks of a net.Dialer.
//
// All methods may be called concurrently.
type RoundTripper struct {
	o Options

	mu    sync.Mutex
	idle  []*pooledConn // the connection that has been idle for the longest time is first
	timer *time.Timer   // runs closeExpired; nil = not running
}

// New returns a RoundTripper.
func New(o Options) *RoundTripper {
	if o.Dial == nil {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		o.Dial = dialer.DialContext
	}
	return &RoundTripper{o: o}
}

// RoundTrip implements [http.RoundTripper]. It returns when the headers of the response have
// arrived. When the context of req is done, its connection is closed; the error of RoundTrip, or of
// reading the body, is then the cause of the context.
func (t *RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkRequest(req); err != nil {
		closeBody(req)
		return nil, err
	}
	ctx := req.Context()
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		trace = &httptrace.ClientTrace{}
	}
	for {
		if ctx.Err() != nil {
			closeBody(req)
			return nil, context.Cause(ctx)
		}
		if trace.GetConn != nil {
			trace.GetConn(t.o.Addr)
		}
		c, err := t.conn(ctx)
		if err != nil {
			closeBody(req)
			return nil, err
		}
		if trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{Conn: c.Conn, Reused: c.reused})
		}
		x := &exchange{c: c, req: req, trace: trace}
		resp, err := x.run()
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !c.reused || x.answered || c.written > 0 && !isReplayable(req):
			return nil, err
		}
		if req = rewound(req); req == nil {
			return nil, err
		}
	}
}

// isReplayable reports whether net/http also sends the request again if the server may have
// received it.
func isReplayable(req *http.Request) bool {
	if req.Body != nil && req.Body != http.NoBody {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// rewound returns a copy of req with the body from its beginning; nil = the body cannot be read
// again.
func rewound(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	again := *req
	again.Body = body
	return &again
}

// conn returns an idle connection that the server has not closed, or a new connection.
func (t *RoundTripper) conn(ctx context.Context) (*pooledConn, error) {
	for {
		t.mu.Lock()
		last := len(t.idle) - 1
		if last < 0 {
			t.mu.Unlock()
			break
		}
		c := t.idle[last]
		t.idle[last] = nil
		t.idle = t.idle[:last]
		t.mu.Unlock()
		c.reused = true
		// The timer may be late, for example after the machine has slept.
		if c.check.end() && time.Since(c.idleSince) < t.o.IdleTimeout {
			return c, nil
		}
		c.Close()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	raw, err := t.o.Dial(ctx, "tcp", t.o.Addr)
	if err != nil {
		return nil, err
	}
	c := &pooledConn{Conn: raw, t: t, check: newIdleCheck(raw)}
	c.r = bufio.NewReaderSize((*limitedReader)(c), t.o.BufferSize)
	return c, nil
}

// keep adds c to the idle connections, or closes c.
func (t *RoundTripper) keep(c *pooledConn) {
	c.idleSince = time.Now()
	c.check.begin()
	t.mu.Lock()
	full := len(t.idle) >= t.o.MaxIdle
	if !full {
		t.idle = append(t.idle, c)
		if t.timer == nil {
			t.timer = time.AfterFunc(t.o.IdleTimeout, t.closeExpired)
		}
	}
	t.mu.Unlock()
	if full {
		c.closeIdle()
	}
}

// closeExpired closes the connections that have been idle for Options.IdleTimeout.
func (t *RoundTripper) closeExpired() {
	t.mu.Lock()
	n := 0
	for n < len(t.idle) && time.Since(t.idle[n].idleSince) >= t.o.IdleTimeout {
		n++
	}
	expired := t.removeLocked(n)
	if len(t.idle) > 0 {
		wait := t.o.IdleTimeout - time.Since(t.idle[0].idleSince)
		t.timer = time.AfterFunc(wait, t.closeExpired)
	} else {
		t.timer = nil
	}
	t.mu.Unlock()
	for _, c := range expired {
		c.closeIdle()
	}
}

// CloseIdleConnections closes the connections that no request uses. Further requests may follow.
func (t *RoundTripper) CloseIdleConnections() {
	t.mu.Lock()
	all := t.removeLocked(len(t.idle))
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	t.mu.Unlock()
	for _, c := range all {
		c.closeIdle()
	}
}

// removeLocked removes the first n idle connections and returns them.
func (t *RoundTripper) removeLocked(n int) []*pooledConn {
	removed := append([]*pooledConn(nil), t.idle[:n]...)
	rest := copy(t.idle, t.idle[n:])
	clear(t.idle[rest:])
	t.idle = t.idle[:rest]
	return removed
}

// A pooledConn is one connection to the server. One exchange uses it at a time.
type pooledConn struct {
	net.Conn
	t         *RoundTripper
	r         *bufio.Reader // reads through limitedReader
	head      requestHead
	check     idleCheck
	reused    bool      // the connection was idle before
	idleSince time.Time // end of the last exchange

	headerBytes int   // bytes that may still be read until the end of the headers
	written     int64 // bytes of the current request that were written
}

// closeIdle closes a connection that was added to the idle connections.
func (c *pooledConn) closeIdle() {
	c.Close()
	c.check.end()
}

// errHeaderTooLong is the error of a response whose headers exceed Options.MaxHeaderBytes.
var errHeaderTooLong = errors.New("the headers of the response are too long")

// unlimited is the value of pooledConn.headerBytes while a body is read.
const unlimited = math.MaxInt

// A limitedReader reads a pooledConn. While the headers of a response are read, it reads at most
// pooledConn.headerBytes bytes.
type limitedReader pooledConn

func (r *limitedReader) Read(b []byte) (int, error) {
	if r.headerBytes == unlimited {
		return r.Conn.Read(b)
	}
	if r.headerBytes <= 0 {
		return 0, errHeaderTooLong
	}
	n, err := r.Conn.Read(b[:min(len(b), r.headerBytes)])
	r.headerBytes -= n
	return n, err
}
