// Package mcptest provides scripted clients and backends for tests of the gateway, which send and
// expect exact bytes. It also runs conversations in txtar files.
//
// A [Peer] is connected by a [transport.Pipe], so that the code under test uses a real transport. A
// Peer works inside and outside of synctest bubbles. The package is for tests only.
package mcptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport/child"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// receiveTimeout is the maximum time that a Peer waits for an expected message; virtual time in a
// bubble.
const receiveTimeout = time.Minute

// A Peer is the remote end of a Conn under test. Its methods may be called from any goroutine, but
// methods that expect a message should be called on the goroutine of the test, because they fail
// the test with FailNow.
type Peer struct {
	t        testing.TB
	name     string
	conn     transport.Conn // the Peer's end of the pipe
	injector *injectingConn

	mu           sync.Mutex
	lines        []string // received lines that were not taken yet
	disconnected bool     // the remote side has closed the connection
	receivePings bool     // pings are recorded like other messages
	arrived      chan struct{}
	done         chan struct{} // closed when the reader has ended
}

// NewPeer returns a Conn for the code under test, and the Peer at its other end. The name appears
// in failure messages. The Peer is closed at the end of the test.
func NewPeer(t testing.TB, name string) (transport.Conn, *Peer) {
	conn, p := NewPausedPeer(t, name)
	p.StartReading()
	return conn, p
}

// NewPausedPeer returns a Peer that reads nothing before StartReading.
func NewPausedPeer(t testing.TB, name string) (transport.Conn, *Peer) {
	a, b := transport.Pipe()
	p := &Peer{
		t: t, name: name, conn: b, injector: &injectingConn{Conn: a},
		arrived: make(chan struct{}, 1), done: make(chan struct{}),
	}
	return p.injector, p
}

// StartReading starts to read messages.
func (p *Peer) StartReading() {
	p.t.Cleanup(func() {
		p.conn.Close()
		<-p.done
	})
	go p.read()
}

func (p *Peer) read() {
	defer close(p.done)
	for {
		m, _, err := p.conn.Read()
		p.mu.Lock()
		switch {
		case err != nil:
			p.disconnected = true
		case !p.receivePings && m.Kind() == wire.Request && m.Method() == "ping":
			_ = p.conn.Write(wire.NewResult(m.ID(), []byte("{}")), "")
		default:
			p.lines = append(p.lines, string(m.Raw()))
		}
		p.mu.Unlock()
		select {
		case p.arrived <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// ReceivePings makes the Peer record pings like other messages. Before the call, the Peer itself
// responds to pings.
func (p *Peer) ReceivePings() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receivePings = true
}

// injectingConn is the end of the pipe for the code under test. A marker notification makes its
// Read return the next injection: a malformed line, a read error, or a message with an origin. A
// Pipe cannot transfer these.
type injectingConn struct {
	transport.Conn

	mu       sync.Mutex
	injected []injection
	finalErr error
}

// An injection is the result of one Read.
type injection struct {
	m      wire.Message
	origin wire.ID
	err    error
}

const injectionMethod = "mcptest/oddity"

func (n *injectingConn) Read() (wire.Message, wire.ID, error) {
	if n.finalErr != nil {
		return wire.Message{}, "", n.finalErr
	}
	m, origin, err := n.Conn.Read()
	if err != nil || m.Method() != injectionMethod {
		return m, origin, err
	}
	n.mu.Lock()
	next := n.injected[0]
	n.injected = n.injected[1:]
	n.mu.Unlock()
	if err = next.err; err == nil {
		return next.m, next.origin, nil
	}
	var malformed *transport.MalformedError
	var lost *transport.CallLostError
	if !errors.As(err, &malformed) && !errors.As(err, &lost) {
		n.finalErr = err
	}
	return wire.Message{}, "", err
}

// FailRead makes Read of the remote side return err, after the messages that were sent before.
func (p *Peer) FailRead(err error) { p.injector.inject(p, injection{err: err}) }

// SendOnStream sends a message on the response stream of the request call, like an HTTP server.
func (p *Peer) SendOnStream(call wire.ID, line string) {
	m, err := wire.Parse([]byte(line))
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	p.injector.inject(p, injection{m: m, origin: call})
}

func (n *injectingConn) inject(p *Peer, next injection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.injected = append(n.injected, next)
	// A closed connection is not an error.
	_ = p.conn.Write(wire.NewNotification(injectionMethod, nil), "")
}

// CloseSend closes the sending side of the Peer, which continues to receive.
func (p *Peer) CloseSend() { p.FailRead(io.EOF) }

// Exit simulates the exit of a child process.
func (p *Peer) Exit(status, stderr string) {
	p.FailRead(&child.ExitError{Status: status, Stderr: stderr})
}

// Close closes the connection in both directions.
func (p *Peer) Close() { p.conn.Close() }

// Send sends a line, which may be malformed.
func (p *Peer) Send(line string) {
	m, err := wire.Parse([]byte(line))
	if err != nil {
		reason, _ := errors.AsType[*wire.Error](err)
		p.FailRead(transport.NewMalformedError([]byte(line), m, reason))
		return
	}
	_ = p.conn.Write(m, "") // a closed connection is not an error
}

// Sendf formats a line and sends it.
func (p *Peer) Sendf(format string, args ...any) { p.Send(fmt.Sprintf(format, args...)) }

// Next waits for the next received line and returns it. It fails the test if the remote side has
// closed the connection, or after receiveTimeout.
func (p *Peer) Next() string {
	p.t.Helper()
	limit := time.NewTimer(receiveTimeout)
	defer limit.Stop()
	for {
		line, over, ok := p.takeLine()
		switch {
		case ok:
			return line
		case over:
			p.t.Fatalf("%s: no next line: the remote side has closed the connection", p.name)
		}
		select {
		case <-p.arrived:
		case <-limit.C:
			p.t.Fatalf("%s: no line received within %v", p.name, receiveTimeout)
		}
	}
}

func (p *Peer) takeLine() (line string, over, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == 0 {
		return "", p.disconnected, false
	}
	line, p.lines = p.lines[0], p.lines[1:]
	return line, p.disconnected, true
}

// NextMessage returns the next line as a message.
func (p *Peer) NextMessage() wire.Message {
	p.t.Helper()
	line := p.Next()
	m, err := wire.Parse([]byte(line))
	if err != nil {
		p.t.Fatalf("%s: got an invalid message: %s", p.name, line)
	}
	return m
}

// Want checks that the next line is line, byte for byte.
func (p *Peer) Want(line string) {
	p.t.Helper()
	if got := p.Next(); got != line {
		p.t.Fatalf("%s:\n got %s\nwant %s", p.name, got, line)
	}
}

// WantJSON checks that the next line is equal to line as JSON.
func (p *Peer) WantJSON(line string) {
	p.t.Helper()
	if got := p.Next(); !sameJSON(got, line) {
		p.t.Fatalf("%s:\n got %s\nwant %s", p.name, got, line)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil &&
		reflect.DeepEqual(x, y)
}

// TakeAll waits until all goroutines in the bubble are blocked, and returns the received lines
// that were not taken yet.
func (p *Peer) TakeAll() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

// WantNothing waits like TakeAll and reports received lines as errors.
func (p *Peer) WantNothing() {
	p.t.Helper()
	for _, line := range p.TakeAll() {
		p.t.Errorf("%s: got %s\nwant nothing", p.name, line)
	}
}

// Disconnected waits like TakeAll and reports whether the remote side has closed the connection.
func (p *Peer) Disconnected() bool {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disconnected
}
