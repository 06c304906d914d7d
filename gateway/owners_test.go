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

// The owners test has two clients and two backends, one that both share and one
// to which each has a connection of its own. All of what a backend says of a call
// bears the call's mark, such as A#17, whatever kind of message it is: no client
// may ever read the mark of the other, and no answer to a question may be given by
// anyone but the client that it was for.
const marks = "AB"

func mark(text []byte) string {
	for _, who := range marks {
		if i := strings.Index(string(text), string(who)+"#"); i >= 0 {
			return string(text[i : i+strings.IndexAny(string(text[i:])+`"`, `"\ `)])
		}
	}
	return ""
}

// tally counts what was delivered, so that it shows that there was something.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (y *tally) add(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[what]++
}

// A player is one end of a conversation, made of the real thing.
type player struct {
	*peer.Peer
	t     *testing.T
	rand  *rand.Rand
	dice  sync.Mutex
	tally *tally
	who   string // of a client; "" of a backend
	next  atomic.Int64
	work  sync.WaitGroup
}

func (p *player) roll(n int) int {
	p.dice.Lock()
	defer p.dice.Unlock()
	return p.rand.IntN(n)
}

func (p *player) idle() { time.Sleep(time.Duration(p.roll(2000)) * time.Millisecond) }

// tap checks all that a client reads.
type tap struct {
	transport.Conn
	*player
}

func (c tap) Read() (wire.Message, wire.ID, error) {
	m, about, err := c.Conn.Read()
	if err == nil && m.Kind() != wire.Invalid {
		kind := m.Method()
		if m.Kind() == wire.Response {
			kind = "response"
		}
		switch got := mark(m.Raw()); {
		case got != "" && got[:1] != c.who:
			c.t.Errorf("%s was sent %s", c.who, m.Raw())
		case got != "":
			c.tally.add("to a client: " + kind)
		}
	}
	return m, about, err
}

// A waiting call or question; want is the mark that its answer has to bear.
type wait struct {
	*player
	want string
	done chan struct{}
	name string
}

func (w *wait) OnProgress(m wire.Message) {
	if got := mark(m.Raw()); got != w.want {
		w.t.Errorf("progress of %s came to %s", got, w.want)
	}
}

func (w *wait) OnResponse(m wire.Message, err error) {
	defer close(w.done)
	switch {
	case err != nil:
		w.tally.add(w.name + " ended without an answer")
	case m.Part(wire.PartError) != nil && mark(m.Raw()) == "":
		w.tally.add(w.name + " was refused")
	case mark(m.Raw()) != w.want:
		w.t.Errorf("%s %s was answered with %s", w.name, w.want, m.Raw())
	default:
		w.tally.add(w.name + " was answered")
	}
}

// ask asks for something, takes it back now and then, and waits for the end.
func (p *player) ask(name, method, mark, params string) {
	w := &wait{player: p, want: mark, done: make(chan struct{}), name: name}
	c := &peer.Call{Handler: w, Token: wire.ID(wire.Quote("token " + mark))}
	p.Send(wire.NewRequest("0", method, []byte(params)), c)
	if p.roll(4) == 0 {
		p.idle()
		c.Cancel(fmt.Appendf(nil, `{"requestId":0,"reason":%q}`, mark))
	}
	<-w.done
}

// HandleRequest implements peer.Handler: a client answers what it is asked, a backend
// works on what it is called for.
func (p *player) HandleRequest(r *peer.Request) {
	at := mark(r.Raw())
	if p.who == "" && at == "" {
		p.greet(r)
		return
	}
	r.OnCancel(back{p, at})
	p.work.Go(func() {
		p.idle()
		if p.who == "" {
			p.chat(r, at)
		}
		if p.roll(5) == 0 {
			r.Fail(wire.Errorf(-1, "%s", at))
		} else {
			r.Reply(fmt.Appendf(nil, `{"mark":%q}`, at))
		}
	})
}

// back hears that a request was taken back, by the one who made it.
type back struct {
	*player
	at string
}

func (b back) HandleCancel(params []byte) {
	if got := mark(params); params != nil && got != b.at {
		b.t.Errorf("%s was taken back as %s", b.at, params)
	}
	b.tally.add("cancelled")
}

func (p *player) HandleNotification(wire.Message, peer.Origin) {}

func (p *player) greet(r *peer.Request) {
	switch r.Method() {
	case "initialize":
		r.Reply([]byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`))
	case "tools/list":
		r.Reply([]byte(mcptest.ToolsResult("work")))
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "no"))
	}
}

// chat is what a backend says in the course of a call.
func (p *player) chat(r *peer.Request, at string) {
	for range p.roll(4) {
		switch p.roll(4) {
		case 0:
			p.Notify("notifications/progress", fmt.Appendf(nil, `{"progressToken":%s,"progress":1,"message":%q}`, r.Token(), at))
		case 1:
			p.Notify("notifications/message", fmt.Appendf(nil, `{"level":"info","data":%q}`, at))
		case 2:
			p.ask("a question", "sampling/createMessage", at, fmt.Sprintf(`{"x":%q,"_meta":{"progressToken":0}}`, at))
		case 3:
			p.ask("a question", "elicitation/create", at, fmt.Sprintf(`{"message":%q}`, at))
		}
		p.idle()
	}
}

// start runs a player over conn until the end of the test.
func (p *player) start(conn transport.Conn, opts peer.Options) {
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

func TestOwners_NothingOfOneClientReachesAnother(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { owners(t, seed) })
		})
	}
}

func owners(t *testing.T, seed uint64) {
	y := &tally{counts: make(map[string]int)}
	number := uint64(0)
	var numbering sync.Mutex
	player := func(who string) *player {
		numbering.Lock()
		defer numbering.Unlock()
		number++
		return &player{t: t, rand: rand.New(rand.NewPCG(seed, number)), tally: y, who: who}
	}
	dial := func(string) (transport.Conn, error) {
		near, far := transport.Pipe()
		player("").start(far, peer.Options{})
		return near, nil
	}
	_, log := mcptest.NewLog()
	journal, auditor := mcptest.NewLog()
	o := settings{sharing: map[string]string{"each": "session"}}
	g := open(t, o, []string{"shared", "each"}, dial, log, slog.New(auditor.Handler()))

	const calls = 1000
	var all sync.WaitGroup
	for _, who := range marks {
		near, far := transport.Pipe()
		p := player(string(who))
		go func() { _ = g.Serve(context.Background(), string(who)+"-session", "", near) }()
		p.start(tap{far, p}, peer.Options{})
		if _, err := p.Call(t.Context(), "initialize", []byte(`{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`)); err != nil {
			t.Fatal(err)
		}
		_ = p.Notify("notifications/initialized", nil)
		if _, err := p.Call(t.Context(), "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		const lanes = 2
		for range lanes {
			all.Go(func() {
				for range calls / len(marks) / lanes {
					at := fmt.Sprintf("%s#%d", p.who, p.next.Add(1))
					tool := []string{"shared__work", "each__work"}[p.roll(2)]
					p.ask("a call", "tools/call", at, fmt.Sprintf(`{"name":%q,"arguments":{"x":%q},"_meta":{"progressToken":0}}`, tool, at))
					if p.roll(10) == 0 {
						time.Sleep(time.Duration(p.roll(60)) * time.Second)
					}
				}
			})
		}
	}
	all.Wait()
	time.Sleep(time.Hour) // what was taken back may still be worked on
	if records := journal.Lines("msg=call"); len(records) != calls {
		t.Errorf("%d calls are on record, want %d", len(records), calls)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	t.Log(y.counts)
	for _, what := range []string{
		"to a client: response", "to a client: notifications/progress", "to a client: notifications/message",
		"to a client: sampling/createMessage", "to a client: elicitation/create", "to a client: notifications/cancelled",
		"a call was answered", "a call ended without an answer", "a question was answered", "a question was refused",
		"a question ended without an answer", "cancelled",
	} {
		if y.counts[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
}
