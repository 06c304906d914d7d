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

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A lane is a conversation in memory of which neither side costs memory.
type lane struct {
	in, out chan wire.Message
	over    chan struct{}
	once    *sync.Once
}

func newLane() (a, b lane) {
	there, back, over, once := make(chan wire.Message, 16), make(chan wire.Message, 16), make(chan struct{}), new(sync.Once)
	return lane{there, back, over, once}, lane{back, there, over, once}
}

func (l lane) Read() (wire.Message, wire.ID, error) {
	select {
	case m := <-l.in:
		return m, "", nil
	case <-l.over:
		return wire.Message{}, "", io.EOF
	}
}

func (l lane) Write(m wire.Message, _ wire.ID) error {
	select {
	case l.out <- m:
		return nil
	case <-l.over:
		return transport.ErrClosed
	}
}

func (l lane) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

// A rig is a gateway, audit on, with backends that answer at once, but for the tool "never".
type rig struct {
	lane // of a client

	serve  func() lane
	answer wire.Message
}

const toolsEach = 25

func newRig(tb testing.TB, backends int, answer string) *rig {
	var names []string
	for i := range backends {
		names = append(names, fmt.Sprintf("b%d", i))
	}
	r := &rig{answer: wire.NewResult("0", []byte(answer))}
	discard := slog.New(slog.DiscardHandler)
	g := open(tb, settings{limit: 64 << 20, grace: time.Millisecond}, names, func(name string) (transport.Conn, error) {
		ours, theirs := newLane()
		go r.play(name, theirs)
		return ours, nil
	}, discard, slog.New(slog.NewJSONHandler(io.Discard, nil)))
	r.serve = func() lane {
		ours, theirs := newLane()
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = g.Serve(context.Background(), "", "", ours)
		}()
		tb.Cleanup(func() {
			theirs.Close()
			<-served
		})
		theirs.ask(tb, wire.NewRequest("1", "initialize", []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)))
		_ = theirs.Write(wire.NewNotification("notifications/initialized", nil), "")
		return theirs
	}
	r.lane = r.serve()
	for strings.Count(string(r.ask(tb, wire.NewRequest("1", "tools/list", nil)).Raw()), `"inputSchema"`) < backends*(toolsEach+1) {
		time.Sleep(time.Millisecond) // outside of any bubble there is nothing to wait on
	}
	return r
}

// play is a backend's part.
func (r *rig) play(name string, conn lane) {
	var list strings.Builder
	fmt.Fprintf(&list, `{"tools":[{"name":"never_%s","inputSchema":{"type":"object"}}`, name)
	for i := range toolsEach {
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
			m = wire.NewResult("0", []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"b","version":"1"}}`))
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

// ask waits for the answer to a request.
func (l lane) ask(tb testing.TB, m wire.Message) wire.Message {
	if err := l.Write(m, ""); err != nil {
		tb.Fatal(err)
	}
	for {
		answer, _, err := l.Read()
		if err != nil || answer.Part(wire.PartError) != nil {
			tb.Fatalf("%v %s", err, answer.Raw())
		}
		if answer.Kind() == wire.Response {
			return answer
		}
	}
}

func toolCall(id int, name string, text string) wire.Message {
	m, err := wire.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q}}}`, id, name, text))
	if err != nil {
		panic(err)
	}
	return m
}

const small = `{"content":[{"type":"text","text":"thirty-two bytes that are answered"}],"isError":false}`

func benchAsk(b *testing.B, r *rig, m wire.Message) {
	b.ReportAllocs()
	for b.Loop() {
		r.ask(b, m)
	}
}

// BenchmarkCall is a call all the way and back, whose message is already parsed, with what there is
// beside it: backends, sessions, calls that are in flight. It does not cost more for any of them.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("%d backends", n), func(b *testing.B) {
			r := newRig(b, n, small)
			benchAsk(b, r, toolCall(2, fmt.Sprintf("tool_7_of_b%d", n-1), "thirty-two bytes"))
		})
	}
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d sessions", n), func(b *testing.B) {
			r := newRig(b, 2, small)
			for range n - 1 {
				r.serve()
			}
			benchAsk(b, r, toolCall(2, "tool_7_of_b1", "thirty-two bytes"))
		})
	}
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d in flight", n), func(b *testing.B) {
			r := newRig(b, 2, small)
			for i := range n - 1 {
				_ = r.Write(toolCall(3+i, fmt.Sprintf("never_b%d", i%2), "x"), "")
			}
			benchAsk(b, r, toolCall(2, "tool_7_of_b1", "thirty-two bytes"))
		})
	}
	for _, n := range []int{1, 32, 256, 4096} {
		b.Run(fmt.Sprintf("%d in flight of clients without sessions", n), func(b *testing.B) {
			r := newRig(b, 2, small)
			stamp := protocol.ClientMeta{Revision: "2026-07-28", ClientInfo: []byte(`{"name":"c","version":"1"}`)}
			for i := range n - 1 {
				_ = r.Write(stamp.AddTo(toolCall(3+i, fmt.Sprintf("never_b%d", i%2), "x")), "")
			}
			benchAsk(b, r, stamp.AddTo(toolCall(2, "tool_7_of_b1", "thirty-two bytes")))
		})
	}
	for _, n := range []int{32, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d bytes each way", n), func(b *testing.B) {
			text := strings.Repeat("x", n)
			r := newRig(b, 1, `{"content":[{"type":"text","text":"`+text+`"}]}`)
			b.SetBytes(2 * int64(n))
			benchAsk(b, r, toolCall(2, "tool_7_of_b0", text))
		})
	}
}

// The bounds are what it costs now, 24 and 10, and one more. Two of a call's are the harness's own, and two
// are for its record in the journal, which is encoded elsewhere. The race detector has a few more.
func TestAllocations(t *testing.T) {
	more := 1.0
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		more = 6
	}
	r := newRig(t, 20, small)
	for m, want := range map[*wire.Message]float64{
		new(toolCall(2, "tool_7_of_b19", "thirty-two bytes")): 24,
		new(wire.NewRequest("2", "tools/list", nil)):          10,
	} {
		least := math.Inf(1) // of several times: what other goroutines do counts, too
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, func() { r.ask(t, *m) }))
		}
		if least > want+more {
			t.Errorf("%s costs %v allocations, not %v", m.Method(), least, want)
		}
	}
}
