package peer

import (
	"fmt"
	"testing"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// ignoringHandler is a Handler that does nothing.
type ignoringHandler struct{}

func (ignoringHandler) HandleRequest(*Request)                  {}
func (ignoringHandler) HandleNotification(wire.Message, Origin) {}

// respondingHandler is a Handler that responds to each request with the same result.
type respondingHandler struct{ result []byte }

func (a respondingHandler) HandleRequest(r *Request)                { r.Reply(a.result) }
func (a respondingHandler) HandleNotification(wire.Message, Origin) {}

// connect returns a Peer at one end of a Pipe; h handles the requests at the other end.
func connect(tb testing.TB, h Handler) *Peer {
	a, b := transport.Pipe()
	near, remote := New(a, ignoringHandler{}, Options{}), New(b, h, Options{})
	done := make(chan struct{}, 2)
	for _, p := range []*Peer{near, remote} {
		go func() {
			_ = p.Run(tb.Context())
			done <- struct{}{}
		}()
	}
	tb.Cleanup(func() {
		near.Close()
		remote.Close()
		<-done
		<-done
	})
	return near
}

var toolsCall = wire.NewRequest("0", "tools/call",
	[]byte(`{"name":"t","arguments":{"text":"thirty-two bytes"}}`))

// BenchmarkCall measures a call and its response, with other calls in flight and with sessions
// whose calls were answered recently.
func BenchmarkCall(b *testing.B) {
	benchmark := func(b *testing.B, p *Peer, session func(int) string) {
		to := make(ResponseChan, 1)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p.Send(toolsCall, &Call{Handler: to, SessionID: session(i)})
			if a := <-to; a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	}
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d in flight", n), func(b *testing.B) {
			p := connect(b, respondingHandler{[]byte(`{"content":[]}`)})
			addInFlight(p, n-1)
			benchmark(b, p, func(int) string { return "o" })
		})
	}
	b.Run("32 in flight, timeout", func(b *testing.B) {
		p := connect(b, respondingHandler{[]byte(`{"content":[]}`)})
		addInFlight(p, 31)
		to := make(ResponseChan, 1)
		b.ReportAllocs()
		for b.Loop() {
			p.Send(toolsCall, &Call{Handler: to, SessionID: "o", Timeout: time.Minute})
			if a := <-to; a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	})
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d sessions", n), func(b *testing.B) {
			p := connect(b, respondingHandler{[]byte(`{"content":[]}`)})
			sessions := make([]string, n)
			for i := range sessions {
				sessions[i] = fmt.Sprint("session", i)
			}
			benchmark(b, p, func(i int) string { return sessions[i%n] })
		})
	}
}

// nullWriter is a transport.Writer that discards everything.
type nullWriter struct{}

func (nullWriter) Write(wire.Message, wire.ID) error { return nil }
func (nullWriter) Close() error                      { return nil }

// BenchmarkRequest measures a request and its response on the receiving side.
func BenchmarkRequest(b *testing.B) {
	result := []byte(`{"content":[]}`)
	b.Run("of a peer", func(b *testing.B) {
		p := NewPush(nullWriter{}, respondingHandler{result}, Options{})
		b.ReportAllocs()
		for b.Loop() {
			p.Receive(toolsCall)
		}
	})
	b.Run("without a peer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			NewRequest(nullWriter{}, toolsCall).Reply(result)
		}
	})
}

// addInFlight puts n calls of one session in flight.
func addInFlight(p *Peer, n int) {
	for range n {
		c := &Call{Handler: make(ResponseChan, 1), SessionID: "o"}
		_ = p.calls.insert(c, &c.firstSend)
	}
}

// BenchmarkSoleSession measures the attribution of a message that belongs to no known call.
func BenchmarkSoleSession(b *testing.B) {
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d in flight", n), func(b *testing.B) {
			p := New(nil, ignoringHandler{}, Options{})
			addInFlight(p, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := p.SoleSession(); !ok {
					b.Fatal("there is but one")
				}
			}
		})
	}
	for _, n := range []int{1, 32, 1000} {
		b.Run(fmt.Sprintf("%d others that were answered", n), func(b *testing.B) {
			p := New(nil, ignoringHandler{}, Options{})
			addInFlight(p, 1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%1000 == 0 { // the records expire after two seconds
					for i := range n {
						p.calls.sessions.recent.noteResponded(fmt.Sprint("session", i), time.Now())
					}
				}
				if _, ok := p.SoleSession(); ok {
					b.Fatal("there are several")
				}
			}
		})
	}
}

// The allocations of a call and its response, on both sides, do not increase.
func TestAllocations(t *testing.T) {
	p := connect(t, respondingHandler{[]byte(`{"content":[]}`)})
	to := make(ResponseChan, 1)
	call := func() {
		p.Send(toolsCall, &Call{Handler: to, SessionID: "o"})
		if a := <-to; a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if n := testing.AllocsPerRun(1000, call); n > 18 {
		t.Errorf("%v allocations", n)
	}
}
