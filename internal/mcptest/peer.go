// Package mcptest plays the far sides of the gateway in tests: clients and
// backends that say, byte for byte, what a test has them say, and whole
// conversations written down as txtar files.
//
// A [Peer] speaks over a [transport.Pipe], so that what it talks to is the real
// thing, and works inside and outside of a synctest bubble. Nothing here is for
// use outside of tests.
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

// receiveTimeout is how long a Peer waits for what must come. In a bubble that time is
// virtual.
const receiveTimeout = time.Minute

// A Peer is the far side of a Conn. Its methods may be called from any goroutine.
// One that misses what it waits for fails the test and ends the goroutine it is
// called on, which should be the test's.
type Peer struct {
	t        testing.TB
	name     string
	conn     transport.Conn // our end of the pipe
	injector *injectingConn

	mu           sync.Mutex
	lines        []string // received and not yet taken
	disconnected bool     // the other side has closed the conversation
	receivePings bool     // a ping is a line like any other
	arrived      chan struct{}
	done         chan struct{} // closed when the reader is gone
}

// NewPeer returns a Conn for whom the test is about, and the Peer at its other end,
// called name in what it reports. The Peer ends with the test.
func NewPeer(t testing.TB, name string) (transport.Conn, *Peer) {
	conn, p := NewPausedPeer(t, name)
	p.StartReading()
	return conn, p
}

// NewPausedPeer is NewPeer for a Peer that reads nothing before Listen.
func NewPausedPeer(t testing.TB, name string) (transport.Conn, *Peer) {
	a, b := transport.Pipe()
	p := &Peer{
		t: t, name: name, conn: b, injector: &injectingConn{Conn: a},
		arrived: make(chan struct{}, 1), done: make(chan struct{}),
	}
	return p.injector, p
}

// StartReading has the Peer read what it is sent.
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

// ReceivePings has the Peer take pings for lines like any other from now on. Before that it
// answers them by itself.
func (p *Peer) ReceivePings() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receivePings = true
}

// injectingConn is the end of the pipe that the other side holds. Its Read makes of some
// notifications what cannot pass through a Pipe: lines that are no message, ends of
// several kinds, and on which stream something is said.
type injectingConn struct {
	transport.Conn

	mu       sync.Mutex
	injected []injection
	finalErr error
}

// A injection is what Read returns once.
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
	m, about, err := n.Conn.Read()
	if err != nil || m.Method() != injectionMethod {
		return m, about, err
	}
	n.mu.Lock()
	next := n.injected[0]
	n.injected = n.injected[1:]
	n.mu.Unlock()
	if err = next.err; err == nil {
		return next.m, next.origin, nil
	}
	var noise *transport.MalformedError
	var lost *transport.CallLostError
	if !errors.As(err, &noise) && !errors.As(err, &lost) {
		n.finalErr = err
	}
	return wire.Message{}, "", err
}

// FailRead has the other side's Read return err, after what was sent before.
func (p *Peer) FailRead(err error) { p.injector.inject(p, injection{err: err}) }

// SendOnStream sends a message on the stream of the request call, as a server does that has one for
// each.
func (p *Peer) SendOnStream(call wire.ID, line string) {
	m, err := wire.Parse([]byte(line))
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	p.injector.inject(p, injection{m: m, origin: call})
}

func (n *injectingConn) inject(p *Peer, s injection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.injected = append(n.injected, s)
	_ = p.conn.Write(wire.NewNotification(injectionMethod, nil), "") // who is gone reads nothing
}

// CloseSend is the end of what the Peer sends; it goes on to listen.
func (p *Peer) CloseSend() { p.FailRead(io.EOF) }

// Exit is how a child process dies.
func (p *Peer) Exit(status, stderr string) {
	p.FailRead(&child.ExitError{Status: status, Stderr: stderr})
}

// Close ends the conversation both ways.
func (p *Peer) Close() { p.conn.Close() }

// Send sends a line as it is, be it a message or not.
func (p *Peer) Send(line string) {
	m, err := wire.Parse([]byte(line))
	if err != nil {
		reason, _ := errors.AsType[*wire.Error](err)
		p.FailRead(transport.NewMalformedError([]byte(line), m, reason))
		return
	}
	_ = p.conn.Write(m, "") // who is gone reads nothing
}

// Sendf formats a line and sends it.
func (p *Peer) Sendf(format string, args ...any) { p.Send(fmt.Sprintf(format, args...)) }

// Next returns the next line that was received, and waits for it.
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
			p.t.Fatalf("%s: the conversation is over, and there is no next line", p.name)
		}
		select {
		case <-p.arrived:
		case <-limit.C:
			p.t.Fatalf("%s: no line came within %v", p.name, receiveTimeout)
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

// NextMessage is Next for a line that is a message.
func (p *Peer) NextMessage() wire.Message {
	p.t.Helper()
	line := p.Next()
	m, err := wire.Parse([]byte(line))
	if err != nil {
		p.t.Fatalf("%s: got what is no message: %s", p.name, line)
	}
	return m
}

// Want takes the next line, which must be this one, byte for byte.
func (p *Peer) Want(line string) {
	p.t.Helper()
	if got := p.Next(); got != line {
		p.t.Fatalf("%s:\n got %s\nwant %s", p.name, got, line)
	}
}

// WantJSON takes the next line, which must be equal to this one as JSON.
func (p *Peer) WantJSON(line string) {
	p.t.Helper()
	if got := p.Next(); !sameJSON(got, line) {
		p.t.Fatalf("%s:\n got %s\nwant %s", p.name, got, line)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TakeAll returns all lines that were received and not taken yet, once everything
// in the bubble has come to rest.
func (p *Peer) TakeAll() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

// WantNothing reports what was received and not taken, if anything was, once
// everything in the bubble has come to rest.
func (p *Peer) WantNothing() {
	p.t.Helper()
	for _, line := range p.TakeAll() {
		p.t.Errorf("%s: got %s\nwant nothing", p.name, line)
	}
}

// Disconnected reports whether the other side has closed the conversation, once everybody in the
// bubble waits.
func (p *Peer) Disconnected() bool {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disconnected
}
