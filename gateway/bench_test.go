package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A memConn is an in-memory connection that allocates nothing.
type memConn struct {
	in, out chan wire.Message
	over    chan struct{}
	once    *sync.Once
}

func newMemConnPair() (a, b memConn) {
	there, back, over, once := make(chan wire.Message, 16), make(chan wire.Message, 16),
		make(chan struct{}), new(sync.Once)
	return memConn{there, back, over, once}, memConn{back, there, over, once}
}

func (l memConn) Read() (wire.Message, wire.ID, error) {
	select {
	case m := <-l.in:
		return m, "", nil
	case <-l.over:
		return wire.Message{}, "", io.EOF
	}
}

func (l memConn) Write(m wire.Message, _ wire.ID) error {
	select {
	case l.out <- m:
		return nil
	case <-l.over:
		return transport.ErrClosed
	}
}

func (l memConn) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

// A benchGateway is a gateway with an audit log. Its backends respond at once, except to calls of
// the tool "never".
type benchGateway struct {
	memConn

	serve  func() memConn
	answer wire.Message
}

const toolsPerBackend = 25

func newBenchGateway(tb testing.TB, backends int, answer string,
	rates ...*ratelimit.RateLimiter) *benchGateway {
	var names []string
	for i := range backends {
		names = append(names, fmt.Sprintf("b%d", i))
	}
	r := &benchGateway{answer: wire.NewResult("0", []byte(answer))}
	discard := slog.New(slog.DiscardHandler)
	o := settings{maxMessage: 64 << 20, grace: time.Millisecond}
	if len(rates) > 0 {
		o.rates = rates[0]
	}
	g := newGateway(tb, o, names,
		func(name string) (transport.Conn, error) {
			ours, theirs := newMemConnPair()
			go r.serveBackend(name, theirs)
			return ours, nil
		}, discard, slog.New(slog.NewJSONHandler(io.Discard, nil)))
	r.serve = func() memConn {
		ours, theirs := newMemConnPair()
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = g.Serve(context.Background(), "", nil, ours)
		}()
		tb.Cleanup(func() {
			theirs.Close()
			<-served
		})
		theirs.roundTrip(tb, wire.NewRequest("1", "initialize",
			[]byte(
				`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)))
		_ = theirs.Write(wire.NewNotification("notifications/initialized", nil), "")
		return theirs
	}
	r.memConn = r.serve()
	for strings.Count(string(r.roundTrip(tb, wire.NewRequest("1", "tools/list", nil)).Raw()),
		`"inputSchema"`) < backends*(toolsPerBackend+1) {
		time.Sleep(time.Millisecond) // synctest.Wait needs a bubble
	}
	return r
}

// serveBackend acts as a backend.
func (r *benchGateway) serveBackend(name string, conn memConn) {
	var list strings.Builder
	fmt.Fprintf(&list, `{"tools":[{"name":"never_%s","inputSchema":{"type":"object"}}`, name)
	for i := range toolsPerBackend {
		fmt.Fprintf(&list, `,{"name":"tool_%d_of_%s","inputSchema":{"type":"object"}}`, i, name)
	}
	list.WriteString("]}")
	for {
		m, _, err := conn.Read()
		if err != nil {
			return
		}
		id := m.Part(wire.PartID)
		switch m.Method() {
		case "initialize":
			m = wire.NewResult("0",
				[]byte(
					`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"b","version":"1"}}`))
		case "tools/list":
			m = wire.NewResult("0", []byte(list.String()))
		case "tools/call":
			if strings.HasPrefix(string(m.Part(wire.PartName)), `"never`) {
				continue
			}
			m = r.answer
		default:
			continue
		}
		_ = conn.Write(m.Splice(wire.Edit{Part: wire.PartID, Text: id}), "")
	}
}

// roundTrip sends a request and waits for the response.
func (l memConn) roundTrip(tb testing.TB, m wire.Message) wire.Message {
	if err := l.Write(m, ""); err != nil {
		tb.Fatal(err)
	}
	for {
		response, _, err := l.Read()
		if err != nil || response.Part(wire.PartError) != nil {
			tb.Fatalf("%v %s", err, response.Raw())
		}
		if response.Kind() == wire.Response {
			return response
		}
	}
}

func benchToolCall(id int, name string, text string) wire.Message {
	m, err := wire.Parse(fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q}}}`, id, name, text))
	if err != nil {
		panic(err)
	}
	return m
}

const smallResult = `{"content":[{"type":"text","text":"thirty-two bytes that are answered"}],"isError":false}`

func benchRequest(b *testing.B, r *benchGateway, m wire.Message) {
	b.ReportAllocs()
	for b.Loop() {
		r.roundTrip(b, m)
	}
}

// BenchmarkCall measures a parsed call and its response, for several numbers of backends, sessions
// and calls in flight. The time should not increase with any of these numbers.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("%d backends", n), func(b *testing.B) {
			r := newBenchGateway(b, n, smallResult)
			benchRequest(b, r, benchToolCall(2, fmt.Sprintf("tool_7_of_b%d", n-1),
				"thirty-two bytes"))
		})
	}
	b.Run("rate limit", func(b *testing.B) {
		rates := new(ratelimit.RateLimiter)
		rates.SetBackends(map[string]config.Rate{"b0": {Limit: "1000000/s"}})
		r := newBenchGateway(b, 1, smallResult, rates)
		benchRequest(b, r, benchToolCall(2, "tool_7_of_b0", "thirty-two bytes"))
	})
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d sessions", n), func(b *testing.B) {
			r := newBenchGateway(b, 2, smallResult)
			for range n - 1 {
				r.serve()
			}
			benchRequest(b, r, benchToolCall(2, "tool_7_of_b1", "thirty-two bytes"))
		})
	}
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d in flight", n), func(b *testing.B) {
			r := newBenchGateway(b, 2, smallResult)
			for i := range n - 1 {
				_ = r.Write(benchToolCall(3+i, fmt.Sprintf("never_b%d", i%2), "x"), "")
			}
			benchRequest(b, r, benchToolCall(2, "tool_7_of_b1", "thirty-two bytes"))
		})
	}
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d in flight of clients without sessions", n), func(b *testing.B) {
			r := newBenchGateway(b, 2, smallResult)
			meta := protocol.ClientMeta{Revision: "2026-07-28",
				ClientInfo: []byte(`{"name":"c","version":"1"}`)}
			for i := range n - 1 {
				_ = r.Write(meta.AddTo(benchToolCall(3+i, fmt.Sprintf("never_b%d", i%2), "x")), "")
			}
			benchRequest(b, r, meta.AddTo(benchToolCall(2, "tool_7_of_b1", "thirty-two bytes")))
		})
	}
	for _, n := range []int{32, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d bytes each way", n), func(b *testing.B) {
			text := strings.Repeat("x", n)
			r := newBenchGateway(b, 1, `{"content":[{"type":"text","text":"`+text+`"}]}`)
			b.SetBytes(2 * int64(n))
			benchRequest(b, r, benchToolCall(2, "tool_7_of_b0", text))
		})
	}
}

// The limits are the current numbers of allocations, 10 and 3, plus one. Two allocations of a
// call are in the harness, and two are for the journal record, which another goroutine encodes.
// The race detector adds a few.
func TestAllocations(t *testing.T) {
	more := 1.0
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings,
		debug.BuildSetting{Key: "-race", Value: "true"}) {
		more = 30 // sync.Pool drops elements at random
	}
	r := newBenchGateway(t, 20, smallResult)
	for m, want := range map[*wire.Message]float64{
		new(benchToolCall(2, "tool_7_of_b19", "thirty-two bytes")): 10,
		new(wire.NewRequest("2", "tools/list", nil)):               3,
	} {
		// lowest of several runs, because allocations of other goroutines are also counted
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, func() { r.roundTrip(t, *m) }))
		}
		if least > want+more {
			t.Errorf("%s costs %v allocations, not %v", m.Method(), least, want)
		}
	}
}
