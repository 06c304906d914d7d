//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gate "mcpgateway/gateway"
)

// seedEnv repeats a run of TestOwners.
const seedEnv = "INTEGRATION_SEED"

func seed(t testing.TB) uint64 {
	n := rand.Uint64()
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat the plan of this run: %s=%d", seedEnv, n)
		}
	})
	return n
}

// TestOwners has two clients make a thousand calls to one backend that says and asks much during each, and names the
// owner whenever it does. Whatever reaches a client must be its own, and reach it once; and what is certain to be a
// client's must reach it.
//
// The calls have the same ids and progress tokens on both sides. Some are cancelled; the backend then goes on for a
// while, and answers or does not. On a connection that is shared and has one stream it is certain whose something is
// while nobody else can be concerned, so one client is alone first, then the other, and then they mix.
func TestOwners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		sharing string
		http    bool
		certain bool // what is said on a call's own stream, or over a connection of the client's own
	}{
		{name: "stdio/shared", sharing: "shared"},
		{name: "stdio/session", sharing: "session", certain: true},
		{name: "http/shared", sharing: "shared", http: true, certain: true},
		{name: "http/session", sharing: "session", http: true, certain: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			notes := notesFile(t)
			b := actor("talker", "talker", notes)
			if c.http {
				server := httptest.NewServer(newTalkerSite(t))
				t.Cleanup(server.Close)
				b = backend{Name: "talker", URL: server.URL}
			}
			ends := &ends{seen: map[string][]gate.OutcomeKind{}}
			in := newInside(t, insideOptions{observers: []gate.Observer{ends}}, of(b, c.sharing))
			h := &hall{t: t, seed: seed(t), streams: map[string]string{}}
			alice, bob := h.enter("Alice", in.url), h.enter("Bob", in.url)
			// Calls that are given up count for 30 s, unless the backend answers them; so those of the first two phases are
			// all answered, and awaited.
			alone := phase{calls: 150, atOnce: 8, cancel: 0.2, late: 1, certain: true}
			asides := c.http && c.sharing == "shared"
			if asides {
				alone.cancel = 0 // over HTTP nobody waits for such an answer
			}
			h.phase("Alice alone", alone, alice)
			if !c.certain {
				// What is answered counts for 2 s, for the backend may go on with it.
				<-time.After(2500 * time.Millisecond)
			}
			h.phase("Bob alone", alone, bob)
			h.phase("both by turns", phase{calls: 100, atOnce: 1, certain: c.certain, some: c.certain, asides: asides}, alice, bob)
			h.phase("both at once", phase{calls: 250, atOnce: 8, cancel: 0.3, late: 0.5, certain: c.certain, asides: asides}, alice, bob)
			for _, g := range []*guest{alice, bob} {
				if err := g.v.leave(); err != nil {
					t.Error(err)
				}
			}
			in.stop()
			if text, _ := os.ReadFile(notes); strings.Contains(string(text), "WRONG") {
				t.Errorf("the backend complains:\n%.2000s", text)
			}
			ends.check(t, alice, bob)
		})
	}
}

// ends observes how the calls of the gateway end.
type ends struct {
	mu   sync.Mutex
	open int
	seen map[string][]gate.OutcomeKind // client's session and id → each end
}

func (e *ends) Begin(*gate.CallInfo) { e.mu.Lock(); e.open++; e.mu.Unlock() }

func (e *ends) End(c *gate.CallInfo, o gate.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
	key := c.Session + " " + string(c.ID)
	e.seen[key] = append(e.seen[key], o.Kind)
}

// check finds that each call ended once, and in the way the client knows.
func (e *ends) check(t testing.TB, guests ...*guest) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open != 0 {
		t.Errorf("%d calls have not ended", e.open)
	}
	for _, g := range guests {
		session, _, _ := strings.Cut(g.v.session, "-")
		for _, c := range g.calls {
			kinds := e.seen[session+" "+c.id()]
			if len(kinds) != 1 || kinds[0] == gate.OK && c.answers == 0 && !c.cancelled || kinds[0] == gate.Cancelled && !c.cancelled {
				t.Errorf("%s's call %d ended as %q; cancelled %t, %d answers", g.name, c.number, kinds, c.cancelled, c.answers)
			}
		}
	}
}

// A hall is where the guests meet, and where it is known what has reached whom.
type hall struct {
	t    testing.TB
	seed uint64

	mu      sync.Mutex
	streams map[string]string // message → guest and stream
}

// A guest is one of the clients.
type guest struct {
	*hall
	name string
	v    *visitor
	plan *rand.Rand

	// Guarded by hall.mu.
	calls     map[int]*guestCall
	asked     map[string]bool // ids of questions
	retracted []string        // likewise
	counts    map[string]int  // by kind, of all that came
}

// A guestCall is what a guest knows of one of its calls.
type guestCall struct {
	talk
	number    int
	think     time.Duration // before it is made
	pause     time.Duration // before it is cancelled, 0 = it is not
	cancelled bool
	answers   int
	heard     map[string][]int // by kind, the numbers of the steps in order of arrival
	result    talkCount
	settles   bool // it is no talk
}

func (c *guestCall) id() string { return strconv.Itoa(c.number) }

// token is a number for some calls and a text for others.
func (c *guestCall) token() string {
	if c.number%3 == 0 {
		return `"` + c.id() + `"`
	}
	return c.id()
}

func (h *hall) enter(name, url string) *guest {
	h.t.Helper()
	g := &guest{
		hall: h, name: name, plan: rand.New(rand.NewPCG(h.seed, uint64(name[0]))),
		calls: map[int]*guestCall{}, asked: map[string]bool{}, counts: map[string]int{},
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var err error
	g.v, err = visit(context.Background(), client, url, `{"sampling":{},"elicitation":{},"roots":{"listChanged":true}}`, g.hear)
	if err == nil {
		err = g.v.listen()
	}
	if err == nil {
		err = g.v.post("", `{"jsonrpc":"2.0","id":-1,"method":"tools/list"}`)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { g.v.vanish(); client.CloseIdleConnections() })
	return g
}

type phase struct {
	calls   int     // of each guest
	atOnce  int     // in flight
	cancel  float64 // the share that is cancelled
	late    float64 // the share of those that is answered nevertheless
	certain bool    // everything that the backend says on the call's stream must arrive
	some    bool    // at least something of each kind must arrive
	asides  bool    // it also says something on no call's stream, though it has others
}

// phase has the guests make their calls, and looks at what they heard.
func (h *hall) phase(name string, p phase, guests ...*guest) {
	h.t.Helper()
	began := time.Now()
	first := map[*guest]int{}
	var all sync.WaitGroup
	for _, g := range guests {
		first[g] = len(g.calls) + 1
		plans := make(chan *guestCall, p.calls)
		for range p.calls {
			plans <- g.invent(p)
		}
		close(plans)
		for range p.atOnce {
			all.Go(func() {
				for c := range plans {
					<-time.After(c.think)
					g.make(c)
				}
			})
		}
	}
	all.Wait()
	for _, g := range guests {
		g.settle()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range guests {
		g.check(name, p, first[g])
	}
	h.t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
}

// invent plans a call.
func (g *guest) invent(p phase) *guestCall {
	r := g.plan
	c := &guestCall{number: len(g.calls) + 1, heard: map[string][]int{}}
	c.Owner, c.Call = g.name, c.number
	kinds := []string{"progress", "log", "elicit", "sample", "roots"}
	total := 0
	for _, kind := range append(kinds, kinds[r.IntN(5)], kinds[r.IntN(5)], "progress") {
		step := talkStep{Micros: r.IntN(2000), Kind: kind, Aside: p.asides && kind != "progress" && r.IntN(3) == 0}
		total += step.Micros
		c.Steps = append(c.Steps, step)
	}
	r.Shuffle(len(c.Steps), func(i, j int) { c.Steps[i], c.Steps[j] = c.Steps[j], c.Steps[i] })
	if p.atOnce == 1 {
		c.think = time.Duration(r.IntN(8000)) * time.Microsecond
	}
	if p.asides { // the answer will be close behind it, on another stream
		c.Steps = append(c.Steps, talkStep{Kind: "log", Aside: true})
	}
	if r.Float64() < p.cancel {
		c.pause = time.Duration(1+r.IntN(total*3/2)) * time.Microsecond // some will have ended by then
		c.Answers = r.Float64() < p.late
		c.Retract = r.IntN(2) == 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[c.number] = c
	return c
}

// make makes a call and waits for its end.
func (g *guest) make(c *guestCall) {
	arguments, _ := json.Marshal(map[string]any{
		"Owner": c.Owner, "Call": c.Call, "Steps": c.Steps, "Answers": c.Answers, "Retract": c.Retract,
	})
	var cancelling sync.WaitGroup
	ended := make(chan struct{})
	if c.pause > 0 {
		cancelling.Go(func() {
			select {
			case <-time.After(c.pause):
			case <-ended:
				return
			}
			g.mu.Lock()
			c.cancelled = true
			g.mu.Unlock()
			if err := g.v.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+c.id()+`}}`); err != nil {
				g.t.Errorf("%s cancels %d: %v", g.name, c.number, err)
			}
		})
	}
	err := g.v.post(c.id(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"talk","arguments":%s,"_meta":{"progressToken":%s}}}`,
		c.id(), arguments, c.token()))
	close(ended)
	cancelling.Wait()
	if err != nil {
		g.t.Errorf("%s's call %d: %v", g.name, c.number, err)
	}
}

// settle waits until the backend is through with everything, and the gateway has read it.
func (g *guest) settle() {
	g.mu.Lock()
	c := &guestCall{number: len(g.calls) + 1, settles: true}
	g.calls[c.number] = c
	g.mu.Unlock()
	if err := g.v.post(c.id(), `{"jsonrpc":"2.0","id":`+c.id()+`,"method":"tools/call","params":{"name":"settle"}}`); err != nil {
		g.t.Error(err)
	}
}

// check looks at the calls of a phase, which are over.
func (g *guest) check(name string, p phase, from int) {
	said, heard, cancelled, answered := map[string]int{}, map[string]int{}, 0, 0
	for number := from; number <= len(g.calls); number++ {
		c := g.calls[number]
		if !c.cancelled && c.answers != 1 || c.answers > 1 {
			g.t.Errorf("%s: %s's call %d: %d answers, cancelled %t", name, g.name, number, c.answers, c.cancelled)
		}
		if c.settles {
			continue
		}
		if c.cancelled {
			cancelled++
			answered += c.answers
			continue
		}
		steps := map[string][]int{}
		for i, step := range c.Steps {
			certain := step.Kind == "progress" || p.certain && !step.Aside
			if certain {
				steps[step.Kind] = append(steps[step.Kind], i+1)
				said[step.Kind]++
			}
			if slices.Contains(c.heard[step.Kind], i+1) {
				heard[step.Kind]++
			} else if certain {
				g.t.Errorf("%s: %s never got %s %d of call %d", name, g.name, step.Kind, i+1, number)
			}
		}
		if got := c.heard["progress"]; !slices.IsSorted(got) {
			g.t.Errorf("%s: %s's call %d: progress in the order %d", name, g.name, number, got)
		}
		questions := len(c.heard["elicit"]) + len(c.heard["sample"]) + len(c.heard["roots"])
		if c.result.Answered != questions {
			g.t.Errorf("%s: %s's call %d: asked %d times, answers that arrived: %d, refused: %d", name, g.name, number,
				questions, c.result.Answered, c.result.Refused)
		}
	}
	for _, id := range g.retracted {
		if !g.asked[id] {
			g.t.Errorf("%s: question %s was taken back from %s, who never got it", name, id, g.name)
		}
	}
	for _, kind := range []string{"progress", "log", "elicit", "sample", "roots"} {
		if (p.certain || p.some) && heard[kind] == 0 {
			g.t.Errorf("%s: no %s reached %s", name, kind, g.name)
		}
	}
	g.t.Logf("%s: %s: heard of calls that were not cancelled %v, of which certain %v; cancelled %d, of which answered %d; in all %v",
		name, g.name, heard, said, cancelled, answered, g.counts)
}

var tagged = regexp.MustCompile(`who=(\w+) call=(\d+) n=(\d+) late=(true|false);`)

// hear is told everything that reaches the guest.
func (g *guest) hear(stream string, m message) {
	tags := tagged.FindAllStringSubmatch(string(m.Raw), -1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(tags) == 0 {
		g.hearPlainLocked(stream, m)
		return
	}
	wrong := func(why string) { g.t.Errorf("%s on %s: %s: %s", g.name, stream, why, m.Raw) }
	tag := tags[0]
	number, _ := strconv.Atoi(tag[2])
	n, _ := strconv.Atoi(tag[3])
	late := tag[4] == "true"
	c := g.calls[number]
	switch {
	case tag[1] != g.name:
		wrong("this is not hers or his")
		return
	case c == nil || c.settles:
		wrong("there is no such call")
		return
	}
	kind := map[string]string{
		"": "answer", "notifications/progress": "progress", "notifications/message": "log",
		"elicitation/create": "elicit", "sampling/createMessage": "sample", "roots/list": "roots",
	}[m.Method]
	key := tag[1] + tag[2] + "/" + tag[3] + kind
	if before := g.streams[key]; before != "" {
		wrong("it came before, to " + before)
	}
	g.streams[key] = g.name + " on " + stream
	g.counts[kind]++
	switch kind {
	case "answer":
		c.answers++
		if late || string(m.ID) != c.id() || stream != c.id() {
			wrong("it is no answer to call " + c.id())
		}
		var result struct{ StructuredContent talkCount }
		if err := json.Unmarshal(m.Result, &result); err != nil {
			wrong(err.Error())
		}
		c.result = result.StructuredContent
	case "progress":
		var params struct{ ProgressToken json.RawMessage }
		json.Unmarshal(m.Params, &params)
		// Of a call that is being cancelled it may come on the GET stream, for its own has ended.
		if late || stream != c.id() && !(c.cancelled && stream == "GET") || string(params.ProgressToken) != c.token() || c.answers > 0 {
			wrong("it is no progress of call " + c.id())
		}
	case "log":
	case "elicit", "sample", "roots":
		if g.asked[string(m.ID)] {
			wrong("the id of a question came twice")
		}
		g.asked[string(m.ID)] = true
		g.v.streams.Go(func() { g.answer(kind, tag[0], m) })
	default:
		wrong("it is unheard of")
		return
	}
	c.heard[kind] = append(c.heard[kind], n)
	if !late && kind != "progress" && kind != "answer" && stream != "GET" && g.calls[atoi(stream)] == nil {
		wrong("there is no such stream")
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// hearPlainLocked hears what has no tag.
func (g *guest) hearPlainLocked(stream string, m message) {
	switch {
	case m.Method == "" && m.Error == nil && string(m.ID) == stream && (stream == "" || g.calls[atoi(stream)] != nil && g.calls[atoi(stream)].settles):
		g.calls[atoi(stream)].answers++
	case m.Method == "" && string(m.ID) == "-1":
	case strings.HasSuffix(m.Method, "/list_changed"):
	case m.Method == "notifications/cancelled":
		var params struct{ RequestID json.RawMessage }
		json.Unmarshal(m.Params, &params)
		g.retracted = append(g.retracted, string(params.RequestID)) // perhaps sooner than the question is heard on its stream
		g.counts["cancelled"]++
	default:
		g.t.Errorf("%s on %s: it is nobody's: %s", g.name, stream, m.Raw)
	}
}

// answer answers a question in the guest's own name.
func (g *guest) answer(kind, tag string, m message) {
	by := "by=" + g.name + " " + tag
	result := map[string]string{
		"elicit": `{"action":"accept","content":{"by":"` + by + `"}}`,
		"sample": `{"role":"assistant","model":"m","content":{"type":"text","text":"` + by + `"}}`,
		"roots":  `{"roots":[{"uri":"file:///","name":"` + by + `"}]}`,
	}[kind]
	if err := g.v.post("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`); err != nil {
		g.t.Errorf("%s answers: %v", g.name, err)
	}
}
