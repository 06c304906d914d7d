package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An elicitingServer is a legacy server over a Conn with a stream per request. Its tool sends an
// elicitation on the stream of the call. When the elicitation is accepted, the tool returns the
// number in the call.
type elicitingServer struct {
	mu      sync.Mutex
	arrived sync.Cond
	out     []sentMessage
	over    bool

	calls     map[wire.ID]int // numbers by id
	runs      map[int]int     // runs by number
	cancelled map[int]int
	answers   map[int]int // responses to its elicitations
}

type sentMessage struct {
	m     wire.Message
	about wire.ID
}

func newElicitingServer() *elicitingServer {
	s := &elicitingServer{}
	s.resetLocked()
	s.arrived.L = &s.mu
	return s
}

// resetLocked removes the queued output and all recorded calls.
func (s *elicitingServer) resetLocked() {
	s.out, s.calls = nil, make(map[wire.ID]int)
	s.runs, s.cancelled, s.answers = make(map[int]int), make(map[int]int), make(map[int]int)
}

// Read implements transport.Conn.
func (s *elicitingServer) Read() (wire.Message, wire.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) == 0 && !s.over {
		s.arrived.Wait()
	}
	if s.over {
		return wire.Message{}, "", io.EOF
	}
	next := s.out[0]
	s.out = s.out[1:]
	return next.m, next.about, nil
}

// Close implements transport.Conn.
func (s *elicitingServer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.arrived.Broadcast()
	return nil
}

// Write implements transport.Conn.
func (s *elicitingServer) Write(m wire.Message, _ wire.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	send := func(m wire.Message, about wire.ID) {
		s.out = append(s.out, sentMessage{m, about})
		s.arrived.Signal()
	}
	switch m.Method() {
	case "initialize":
		send(wire.NewResult(m.ID(),
			[]byte(
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)), "")
	case "tools/list":
		send(wire.NewResult(m.ID(), []byte(mcptest.ToolsResult("ask"))), "")
	case "tools/call":
		n, _ := wire.Lookup(m.Part(wire.PartArguments), "n")
		number, _ := strconv.Atoi(string(n))
		s.calls[m.ID()] = number
		s.runs[number]++
		send(wire.NewRequest(wire.ID(`"q`+string(m.ID())+`"`), "elicitation/create",
			[]byte(`{"message":"Who?","requestedSchema":{"type":"object"}}`)), m.ID())
	case "notifications/cancelled":
		if number, ok := s.calls[m.RequestID()]; ok {
			s.cancelled[number]++
		}
	case "":
		call := m.ID()[2 : len(m.ID())-1]
		if number, ok := s.calls[call]; ok {
			s.answers[number]++
			if action, _ := wire.Lookup(m.Part(wire.PartResult), "action"); string(action) ==
				`"accept"` {
				send(wire.NewResult(call, fmt.Appendf(nil, `{"content":[],"n":%d}`, number)), "")
			}
		}
	}
	return nil
}

// A callCounter counts the beginnings and ends of each request.
type callCounter struct {
	mu    sync.Mutex
	begun map[string]int
	ended map[string]int
	kinds map[gateway.OutcomeKind]int
}

func (c *callCounter) Begin(call *gateway.CallInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun[call.Session+" "+string(call.ID)]++
}

func (*callCounter) Routed(*gateway.CallInfo) {}

func (c *callCounter) End(call *gateway.CallInfo, o gateway.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[call.Session+" "+string(call.ID)]++
	c.kinds[o.Kind]++
}

// Ten thousand calls are suspended at a time. Some clients continue their calls with responses,
// some twice at the same time, some with a modified ticket or the ticket of another call. Other
// clients disconnect or never continue their calls. Each call ends once, no call runs twice, and
// no data is left.
func TestSuspended_TenThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	const calls, clients = 10_000, 20
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		server := newElicitingServer()
		counts := &callCounter{begun: make(map[string]int), ended: make(map[string]int),
			kinds: make(map[gateway.OutcomeKind]int)}
		quiet := slog.New(slog.DiscardHandler)
		dial := func(string) (transport.Conn, error) { return server, nil }
		g := newGateway(t, settings{sharing: map[string]string{"s": "shared"}, observer: counts,
			inFlight: 2000}, []string{"s"}, dial, quiet, quiet)
		peers := make([]*mcptest.Peer, clients)
		var serving sync.WaitGroup
		for i := range peers {
			conn, p := mcptest.NewPeer(t, fmt.Sprint("client ", i))
			peers[i] = p
			serving.Go(func() {
				_ = g.Serve(context.Background(), fmt.Sprint("s", i), named(fmt.Sprint(i)),
					conn)
			})
		}
		ask := func(n int, id string, more string) {
			peers[n%clients].Send(modernRequest(id, "tools/call",
				fmt.Sprintf(`"name":"ask","arguments":{"n":%d},%s`, n, more), `{"elicitation":{}}`))
		}
		answer := func(ticket string) string {
			return `"inputResponses":{"q1":{"action":"accept"}},"requestState":` + ticket + `,`
		}
		round := func(first int) (full int64) {
			tickets := make([]string, calls)
			for n := range calls {
				ask(n, fmt.Sprint(first*10+n), "")
				tickets[n] = wantInputRequired(t, peers[n%clients], "q1")
			}
			if n := g.SuspendedCalls(); n != calls {
				t.Fatalf("%d calls are suspended, want %d", n, calls)
			}
			full = mcptest.LiveHeap()

			const (
				answered = iota
				twice
				tampered
				foreign
				hungUp
				silent
				fates
			)
			ending := make([]int, calls)
			for n := range calls {
				p := peers[n%clients]
				ending[n] = random.IntN(fates)
				id := fmt.Sprint(first*10 + calls + n)
				refused := func(p *mcptest.Peer) {
					if failure := wire.ReadError(
						p.NextMessage().Part(wire.PartError)); failure.Code != -32602 {
						t.Errorf("call %d: rejected with %+v", n, failure)
					}
				}
				done := func(m wire.Message) {
					if got, _ := wire.Lookup(m.Part(wire.PartResult), "n"); string(got) !=
						fmt.Sprint(n) {
						t.Errorf("call %d: answered %s", n, m.Raw())
					}
				}
				switch ending[n] {
				case answered:
					ask(n, id, answer(tickets[n]))
					done(p.NextMessage())
				case twice:
					ask(n, id, answer(tickets[n]))
					ask(n, `"`+id+`"`, answer(tickets[n]))
					a, b := p.NextMessage(), p.NextMessage()
					if a.Part(wire.PartError) != nil {
						a, b = b, a
					}
					done(a)
					if failure := wire.ReadError(b.Part(wire.PartError)); failure.Code != -32602 {
						t.Errorf("call %d: the second request got %s", n, b.Raw())
					}
				case tampered:
					text := []byte(tickets[n])
					at := 1 + random.IntN(len(text)-2)
					text[at] = flipped(text[at])[0]
					ask(n, id, answer(string(text)))
					refused(p)
				case foreign:
					other := n + 1 + random.IntN(clients-1)
					peers[other%clients].Send(modernRequest(id, "tools/call",
						fmt.Sprintf(`"name":"ask","arguments":{"n":%d},%s`, n, answer(tickets[n])),
						`{"elicitation":{}}`))
					refused(peers[other%clients])
				case hungUp:
					// The client does not respond, and cancels its request before it gets the
					// input requests.
					p.Send(modernRequest(id, "tools/call",
						fmt.Sprintf(
							`"name":"ask","arguments":{"n":%d},"inputResponses":{"q1":{"action":"decline"}},"requestState":%s,`, n, tickets[n]), `{"elicitation":{}}`))
					p.Send(
						fmt.Sprintf(
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
				case silent:
				}
			}
			time.Sleep(15 * time.Minute)
			synctest.Wait()
			if n := g.SuspendedCalls(); n != 0 {
				t.Errorf("%d calls are still suspended", n)
			}
			server.mu.Lock()
			for n := range calls {
				ends := 0
				if ending[n] == tampered || ending[n] == foreign || ending[n] == hungUp ||
					ending[n] == silent {
					ends = 1
				}
				if runs := server.runs[n]; runs != 1 {
					t.Errorf("call %d ran %d times", n, runs)
				}
				if server.answers[n] != 1 {
					t.Errorf("call %d: its input request was answered %d times", n,
						server.answers[n])
				}
				if server.cancelled[n] != ends {
					t.Errorf("call %d, ending %d: cancelled %d times, want %d", n, ending[n],
						server.cancelled[n], ends)
				}
			}
			server.resetLocked()
			server.mu.Unlock()
			for _, p := range peers {
				p.WantNothing()
			}
			counts.mu.Lock()
			for key, n := range counts.begun {
				if n != 1 || counts.ended[key] != 1 {
					t.Errorf("request %s began %d times and ended %d times", key, n,
						counts.ended[key])
				}
			}
			t.Logf("%d requests: %v", len(counts.begun), counts.kinds)
			counts.begun, counts.ended, counts.kinds = make(map[string]int), make(map[string]int),
				make(map[gateway.OutcomeKind]int)
			counts.mu.Unlock()
			return full
		}
		round(0) // tables keep their grown capacity
		before := mcptest.LiveHeap()
		full := round(calls)
		after := mcptest.LiveHeap()
		t.Logf("heap: %d KiB before, %d KiB with %d suspended calls, %d KiB after", before>>10,
			full>>10, calls, after>>10)
		if after > before+1<<20 {
			t.Errorf("memory is not released: %d KiB before, %d KiB after", before>>10, after>>10)
		}
		for _, p := range peers {
			p.Close()
		}
		serving.Wait()
	})
}
