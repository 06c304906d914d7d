package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// The isolation test has two clients and two backends, one shared and one with per-session
// connections. Every message of a backend about a call contains the call's mark, such as A#17. A
// client must never read a mark of the other client, and an input response must come from the
// client to which the input request was sent.
const clientLetters = "AB"

func findMark(text []byte) string {
	for _, letter := range clientLetters {
		if i := strings.Index(string(text), string(letter)+"#"); i >= 0 {
			return string(text[i : i+strings.IndexAny(string(text[i:])+`"`, `"\ `)])
		}
	}
	return ""
}

// deliveryCount counts deliveries, to prove that the test has delivered messages.
type deliveryCount struct {
	mu     sync.Mutex
	counts map[string]int
}

func (y *deliveryCount) count(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[what]++
}

// A participant is a client or a backend with a real peer.
type participant struct {
	*peer.Peer
	t      *testing.T
	rand   *rand.Rand
	dice   sync.Mutex
	counts *deliveryCount
	who    string // client letter; "" for a backend
	next   atomic.Int64
	work   sync.WaitGroup
}

func (p *participant) random(n int) int {
	p.dice.Lock()
	defer p.dice.Unlock()
	return p.rand.IntN(n)
}

func (p *participant) sleepRandomly() {
	time.Sleep(time.Duration(p.random(2000)) * time.Millisecond)
}

// markChecker checks everything that a client reads.
type markChecker struct {
	transport.Conn
	*participant
}

func (c markChecker) Read() (wire.Message, wire.ID, error) {
	m, about, err := c.Conn.Read()
	if err == nil && m.Kind() != wire.Invalid {
		kind := m.Method()
		if m.Kind() == wire.Response {
			kind = "response"
		}
		switch got := findMark(m.Raw()); {
		case got != "" && got[:1] != c.who:
			c.t.Errorf("%s got %s", c.who, m.Raw())
		case got != "":
			c.counts.count("to a client: " + kind)
		}
	}
	return m, about, err
}

// A pendingRequest is a request in flight. Want is the mark that the response must contain.
type pendingRequest struct {
	*participant
	want string
	done chan struct{}
	name string
}

func (w *pendingRequest) OnProgress(m wire.Message) {
	if got := findMark(m.Raw()); got != w.want {
		w.t.Errorf("progress of %s reached %s", got, w.want)
	}
}

func (w *pendingRequest) OnResponse(m wire.Message, err error) {
	defer close(w.done)
	switch {
	case err != nil:
		w.counts.count(w.name + " ended without a response")
	case m.Part(wire.PartError) != nil && findMark(m.Raw()) == "":
		w.counts.count(w.name + " was refused")
	case findMark(m.Raw()) != w.want:
		w.t.Errorf("%s %s was answered with %s", w.name, w.want, m.Raw())
	default:
		w.counts.count(w.name + " was answered")
	}
}

// request sends a request, cancels it with some probability, and waits for its end.
func (p *participant) request(name, method, mark, params string) {
	w := &pendingRequest{participant: p, want: mark, done: make(chan struct{}), name: name}
	call := &peer.Call{Handler: w, Token: wire.ID(wire.Quote("token " + mark))}
	p.Send(wire.NewRequest("0", method, []byte(params)), call)
	if p.random(4) == 0 {
		p.sleepRandomly()
		call.Cancel(fmt.Appendf(nil, `{"requestId":0,"reason":%q}`, mark))
	}
	<-w.done
}

// HandleRequest implements peer.Handler: a client responds to requests, and a backend runs calls.
func (p *participant) HandleRequest(r *peer.Request) {
	at := findMark(r.Raw())
	if p.who == "" && at == "" {
		p.replyHandshake(r)
		return
	}
	r.OnCancel(cancelRecorder{p, at})
	p.work.Go(func() {
		p.sleepRandomly()
		if p.who == "" {
			p.sendUnsolicited(r, at)
		}
		if p.random(5) == 0 {
			r.Fail(wire.Errorf(-1, "%s", at))
		} else {
			r.Reply(fmt.Appendf(nil, `{"mark":%q}`, at))
		}
	})
}

// cancelRecorder checks that a cancellation comes from the sender of the request.
type cancelRecorder struct {
	*participant
	at string
}

func (b cancelRecorder) HandleCancel(params []byte) {
	if got := findMark(params); params != nil && got != b.at {
		b.t.Errorf("%s was cancelled with %s", b.at, params)
	}
	b.counts.count("cancelled")
}

func (p *participant) HandleNotification(wire.Message, peer.Origin) {}

func (p *participant) replyHandshake(r *peer.Request) {
	switch r.Method() {
	case "initialize":
		r.Reply(
			[]byte(
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`))
	case "tools/list":
		r.Reply([]byte(mcptest.ToolsResult("work")))
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "no"))
	}
}

// sendUnsolicited sends requests and notifications of a backend during a call.
func (p *participant) sendUnsolicited(r *peer.Request, at string) {
	for range p.random(4) {
		switch p.random(4) {
		case 0:
			p.Notify("notifications/progress",
				fmt.Appendf(nil, `{"progressToken":%s,"progress":1,"message":%q}`, r.Token(), at))
		case 1:
			p.Notify("notifications/message", fmt.Appendf(nil, `{"level":"info","data":%q}`, at))
		case 2:
			p.request("a server request", "sampling/createMessage", at,
				fmt.Sprintf(`{"x":%q,"_meta":{"progressToken":0}}`, at))
		case 3:
			p.request("a server request", "elicitation/create", at,
				fmt.Sprintf(`{"message":%q}`, at))
		}
		p.sleepRandomly()
	}
}

// run connects a participant to conn until the end of the test.
func (p *participant) run(conn transport.Conn, opts peer.Options) {
	p.Peer = peer.New(conn, p, opts)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(context.Background())
	}()
	p.t.Cleanup(func() {
		p.Peer.Close()
		<-done
		p.work.Wait()
	})
}

func TestIsolation_NothingReachesAnotherClient(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runIsolation(t, seed) })
		})
	}
}

func runIsolation(t *testing.T, seed uint64) {
	y := &deliveryCount{counts: make(map[string]int)}
	number := uint64(0)
	var numbering sync.Mutex
	player := func(letter string) *participant {
		numbering.Lock()
		defer numbering.Unlock()
		number++
		return &participant{t: t, rand: rand.New(rand.NewPCG(seed, number)), counts: y, who: letter}
	}
	dial := func(string) (transport.Conn, error) {
		near, far := transport.Pipe()
		player("").run(far, peer.Options{})
		return near, nil
	}
	_, log := mcptest.NewLog()
	journal, auditor := mcptest.NewLog()
	o := settings{sharing: map[string]string{"each": "session"}}
	g := newGateway(t, o, []string{"shared", "each"}, dial, log, slog.New(auditor.Handler()))

	const calls = 1000
	var wg sync.WaitGroup
	for _, letter := range clientLetters {
		near, far := transport.Pipe()
		p := player(string(letter))
		go func() { _ = g.Serve(context.Background(), string(letter)+"-session", nil, near) }()
		p.run(markChecker{far, p}, peer.Options{})
		if _, err := p.Call(t.Context(), "initialize",
			[]byte(
				`{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`)); err != nil {
			t.Fatal(err)
		}
		_ = p.Notify("notifications/initialized", nil)
		if _, err := p.Call(t.Context(), "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		const lanes = 2
		for range lanes {
			wg.Go(func() {
				for range calls / len(clientLetters) / lanes {
					at := fmt.Sprintf("%s#%d", p.who, p.next.Add(1))
					tool := []string{"shared__work", "each__work"}[p.random(2)]
					p.request("a call", "tools/call", at,
						fmt.Sprintf(`{"name":%q,"arguments":{"x":%q},"_meta":{"progressToken":0}}`,
							tool, at))
					if p.random(10) == 0 {
						time.Sleep(time.Duration(p.random(60)) * time.Second)
					}
				}
			})
		}
	}
	wg.Wait()
	time.Sleep(time.Hour) // cancelled requests may still be running
	if records := journal.Lines("msg=call"); len(records) != calls {
		t.Errorf("%d calls are recorded, want %d", len(records), calls)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	t.Log(y.counts)
	for _, what := range []string{
		"to a client: response", "to a client: notifications/progress",
		"to a client: notifications/message",
		"to a client: sampling/createMessage", "to a client: elicitation/create",
		"to a client: notifications/cancelled",
		"a call was answered", "a call ended without a response", "a server request was answered",
		"a server request was refused",
		"a server request ended without a response", "cancelled",
	} {
		if y.counts[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
}
