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

	gatewaypkg "mcpgateway/gateway"
)

// seedEnv sets the seed, to repeat a run of TestAttribution.
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
			t.Logf("to repeat this run: %s=%d", seedEnv, n)
		}
	})
	return n
}

// TestAttribution has two clients make a thousand calls to one backend that sends many
// notifications and requests during each call, labelled with the call they belong to. Each
// message that reaches a client must belong to that client and must arrive only once. A message
// whose client is certain must arrive.
//
// The calls have the same ids and progress tokens on both sides. Some are cancelled; the backend
// then continues for a while, and responds or does not. On a shared connection with one stream,
// the client of a message is certain only while no other client can be concerned. Therefore one
// client is alone first, then the other, and then both call at the same time.
func TestAttribution(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		sharing string
		http    bool
		certain bool // messages are on the call's stream, or on a connection of one client
	}{
		{name: "stdio/shared", sharing: "shared"},
		{name: "stdio/session", sharing: "session", certain: true},
		{name: "http/shared", sharing: "shared", http: true, certain: true},
		{name: "http/session", sharing: "session", http: true, certain: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			notes := notesFile(t)
			b := helperBackend("attribution", "attribution", notes)
			if c.http {
				server := httptest.NewServer(newAttributionHTTP(t))
				t.Cleanup(server.Close)
				b = backend{Name: "attribution", URL: server.URL}
			}
			ends := &outcomeRecorder{seen: map[string][]gatewaypkg.OutcomeKind{}}
			in := newInProcess(t, inProcessOptions{observers: []gatewaypkg.Observer{ends}},
				configBackend(b, c.sharing))
			at := &attributionTest{t: t, seed: seed(t), streams: map[string]string{}}
			alice, bob := at.connect("Alice", in.url), at.connect("Bob", in.url)
			// Cancelled calls count for 30 s unless the backend responds. Therefore all calls of
			// the first two phases get a response, and the test waits for it.
			alone := phase{calls: 150, atOnce: 8, cancel: 0.2, answered: 1, certain: true}
			standalone := c.http && c.sharing == "shared"
			if standalone {
				alone.cancel = 0 // over HTTP the gateway does not wait for such a response
			}
			at.runPhase("Alice alone", alone, alice)
			if !c.certain {
				// A completed call counts for 2 s, because the backend may still send messages
				// for it.
				<-time.After(2500 * time.Millisecond)
			}
			at.runPhase("Bob alone", alone, bob)
			at.runPhase("both in turn", phase{calls: 100, atOnce: 1, certain: c.certain,
				some: c.certain, standalone: standalone}, alice, bob)
			at.runPhase("both at once", phase{calls: 250, atOnce: 8, cancel: 0.3, answered: 0.5,
				certain: c.certain, standalone: standalone}, alice, bob)
			for _, ac := range []*attributionClient{alice, bob} {
				if err := ac.client.deleteSession(); err != nil {
					t.Error(err)
				}
			}
			in.stop()
			if text, _ := os.ReadFile(notes); strings.Contains(string(text), "FAULT") {
				t.Errorf("faults found by the backend:\n%.2000s", text)
			}
			ends.check(t, alice, bob)
		})
	}
}

// An outcomeRecorder records how the calls of the gateway end.
type outcomeRecorder struct {
	mu   sync.Mutex
	open int
	seen map[string][]gatewaypkg.OutcomeKind // client's session and id → outcome of each end
}

func (e *outcomeRecorder) Begin(*gatewaypkg.CallInfo) { e.mu.Lock(); e.open++; e.mu.Unlock() }

func (*outcomeRecorder) Routed(*gatewaypkg.CallInfo) {}

func (e *outcomeRecorder) End(c *gatewaypkg.CallInfo, o gatewaypkg.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
	key := c.Session + " " + string(c.ID)
	e.seen[key] = append(e.seen[key], o.Kind)
}

// check checks that each call ended once, with the outcome that the client expects.
func (e *outcomeRecorder) check(t testing.TB, clients ...*attributionClient) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open != 0 {
		t.Errorf("%d calls have not ended", e.open)
	}
	for _, ac := range clients {
		session, _, _ := strings.Cut(ac.client.session, "-")
		for _, c := range ac.calls {
			kinds := e.seen[session+" "+c.id()]
			if len(kinds) != 1 || kinds[0] == gatewaypkg.OK && c.responses == 0 && !c.cancelled ||
				kinds[0] == gatewaypkg.Cancelled && !c.cancelled {
				t.Errorf("%s's call %d ended as %q; cancelled %t, %d responses", ac.name, c.number,
					kinds, c.cancelled, c.responses)
			}
		}
	}
}

// An attributionTest records which message has reached which client.
type attributionTest struct {
	t    testing.TB
	seed uint64

	mu      sync.Mutex
	streams map[string]string // message → client and stream
}

// An attributionClient is one of the two clients.
type attributionClient struct {
	*attributionTest
	name   string
	client *streamClient
	random *rand.Rand

	// Guarded by attributionTest.mu.
	calls        map[int]*plannedCall
	requestIDs   map[string]bool // ids of requests of the backend
	cancelledIDs []string        // ids of requests that the backend has cancelled
	counts       map[string]int  // messages received, by kind
}

// A plannedCall is the client's record of one of its calls.
type plannedCall struct {
	scriptedCall
	number    int
	think     time.Duration // before the call
	pause     time.Duration // before the cancellation; 0 = not cancelled
	cancelled bool
	responses int
	received  map[string][]int // by kind, the numbers of the steps in order of arrival
	result    responseCounts
	idleCall  bool // call of await_idle instead of script
}

func (c *plannedCall) id() string { return strconv.Itoa(c.number) }

// token returns a number for some calls and a string for others.
func (c *plannedCall) token() string {
	if c.number%3 == 0 {
		return `"` + c.id() + `"`
	}
	return c.id()
}

func (at *attributionTest) connect(name, url string) *attributionClient {
	at.t.Helper()
	ac := &attributionClient{
		attributionTest: at, name: name, random: rand.New(rand.NewPCG(at.seed, uint64(name[0]))),
		calls: map[int]*plannedCall{}, requestIDs: map[string]bool{}, counts: map[string]int{},
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var err error
	ac.client, err = dialStreams(context.Background(), client, url,
		`{"sampling":{},"elicitation":{},"roots":{"listChanged":true}}`, ac.onMessage)
	if err == nil {
		err = ac.client.openStandalone()
	}
	if err == nil {
		err = ac.client.post("", `{"jsonrpc":"2.0","id":-1,"method":"tools/list"}`)
	}
	if err != nil {
		at.t.Fatal(err)
	}
	at.t.Cleanup(func() { ac.client.disconnect(); client.CloseIdleConnections() })
	return ac
}

type phase struct {
	calls      int     // per client
	atOnce     int     // maximum in flight
	cancel     float64 // share of calls that are cancelled
	answered   float64 // share of cancelled calls that get a response
	certain    bool    // each message on the call's stream must arrive
	some       bool    // at least one message of each kind must arrive
	standalone bool    // the backend also uses the standalone stream
}

// runPhase has the clients make their calls, and checks the messages that they received.
func (at *attributionTest) runPhase(name string, p phase, clients ...*attributionClient) {
	at.t.Helper()
	began := time.Now()
	first := map[*attributionClient]int{}
	var all sync.WaitGroup
	for _, ac := range clients {
		first[ac] = len(ac.calls) + 1
		plans := make(chan *plannedCall, p.calls)
		for range p.calls {
			plans <- ac.planCall(p)
		}
		close(plans)
		for range p.atOnce {
			all.Go(func() {
				for c := range plans {
					<-time.After(c.think)
					ac.makeCall(c)
				}
			})
		}
	}
	all.Wait()
	for _, ac := range clients {
		ac.awaitIdle()
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	for _, ac := range clients {
		ac.check(name, p, first[ac])
	}
	at.t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
}

func (ac *attributionClient) planCall(p phase) *plannedCall {
	r := ac.random
	c := &plannedCall{number: len(ac.calls) + 1, received: map[string][]int{}}
	c.Client, c.Call = ac.name, c.number
	kinds := []string{"progress", "log", "elicit", "sample", "roots"}
	total := 0
	for _, kind := range append(kinds, kinds[r.IntN(5)], kinds[r.IntN(5)], "progress") {
		step := scriptStep{Micros: r.IntN(2000), Kind: kind, Standalone: p.standalone &&
			kind != "progress" && r.IntN(3) == 0}
		total += step.Micros
		c.Steps = append(c.Steps, step)
	}
	r.Shuffle(len(c.Steps), func(i, j int) { c.Steps[i], c.Steps[j] = c.Steps[j], c.Steps[i] })
	if p.atOnce == 1 {
		c.think = time.Duration(r.IntN(8000)) * time.Microsecond
	}
	if p.standalone { // the response follows closely, on another stream
		c.Steps = append(c.Steps, scriptStep{Kind: "log", Standalone: true})
	}
	if r.Float64() < p.cancel {
		// Some calls will have ended by then.
		c.pause = time.Duration(1+r.IntN(total*3/2)) * time.Microsecond
		c.Respond = r.Float64() < p.answered
		c.CancelRequests = r.IntN(2) == 0
	}
	ac.mu.Lock()
	defer ac.mu.Unlock()
	ac.calls[c.number] = c
	return c
}

// makeCall makes a call and waits for its end.
func (ac *attributionClient) makeCall(c *plannedCall) {
	arguments, _ := json.Marshal(map[string]any{
		"Client": c.Client, "Call": c.Call, "Steps": c.Steps, "Respond": c.Respond,
		"CancelRequests": c.CancelRequests,
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
			ac.mu.Lock()
			c.cancelled = true
			ac.mu.Unlock()
			if err := ac.client.post("",
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+c.id()+
					`}}`); err != nil {
				ac.t.Errorf("%s: cancel call %d: %v", ac.name, c.number, err)
			}
		})
	}
	err := ac.client.post(c.id(),
		fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"script","arguments":%s,"_meta":{"progressToken":%s}}}`,
			c.id(), arguments, c.token()))
	close(ended)
	cancelling.Wait()
	if err != nil {
		ac.t.Errorf("%s's call %d: %v", ac.name, c.number, err)
	}
}

// awaitIdle waits until the backend has finished all scripts and the gateway has read all of its
// messages.
func (ac *attributionClient) awaitIdle() {
	ac.mu.Lock()
	c := &plannedCall{number: len(ac.calls) + 1, idleCall: true}
	ac.calls[c.number] = c
	ac.mu.Unlock()
	if err := ac.client.post(c.id(), `{"jsonrpc":"2.0","id":`+c.id()+
		`,"method":"tools/call","params":{"name":"await_idle"}}`); err != nil {
		ac.t.Error(err)
	}
}

// check checks the completed calls of a phase.
func (ac *attributionClient) check(name string, p phase, from int) {
	certainCounts, received, cancelled, answered := map[string]int{}, map[string]int{}, 0, 0
	for number := from; number <= len(ac.calls); number++ {
		c := ac.calls[number]
		if !c.cancelled && c.responses != 1 || c.responses > 1 {
			ac.t.Errorf("%s: %s's call %d: %d responses, cancelled %t", name, ac.name, number,
				c.responses, c.cancelled)
		}
		if c.idleCall {
			continue
		}
		if c.cancelled {
			cancelled++
			answered += c.responses
			continue
		}
		steps := map[string][]int{}
		for i, step := range c.Steps {
			certain := step.Kind == "progress" || p.certain && !step.Standalone
			if certain {
				steps[step.Kind] = append(steps[step.Kind], i+1)
				certainCounts[step.Kind]++
			}
			if slices.Contains(c.received[step.Kind], i+1) {
				received[step.Kind]++
			} else if certain {
				ac.t.Errorf("%s: %s did not receive %s %d of call %d", name, ac.name, step.Kind,
					i+1, number)
			}
		}
		if got := c.received["progress"]; !slices.IsSorted(got) {
			ac.t.Errorf("%s: %s's call %d: progress in the order %d", name, ac.name, number, got)
		}
		requests := len(c.received["elicit"]) + len(c.received["sample"]) + len(c.received["roots"])
		if c.result.Answered != requests {
			ac.t.Errorf("%s: %s's call %d: %d requests received, %d responses arrived, %d rejected",
				name, ac.name, number,
				requests, c.result.Answered, c.result.Rejected)
		}
	}
	for _, id := range ac.cancelledIDs {
		if !ac.requestIDs[id] {
			ac.t.Errorf("%s: request %s was cancelled at %s, which never received it", name, id,
				ac.name)
		}
	}
	for _, kind := range []string{"progress", "log", "elicit", "sample", "roots"} {
		if (p.certain || p.some) && received[kind] == 0 {
			ac.t.Errorf("%s: no %s reached %s", name, kind, ac.name)
		}
	}
	ac.t.Logf(
		"%s: %s: messages of calls that were not cancelled %v, certain %v; calls cancelled %d, with response %d; messages in total %v",
		name, ac.name, received, certainCounts, cancelled, answered, ac.counts)
}

var labelPattern = regexp.MustCompile(`client=(\w+) call=(\d+) n=(\d+) late=(true|false);`)

// onMessage receives every message that reaches the client.
func (ac *attributionClient) onMessage(stream string, m message) {
	tags := labelPattern.FindAllStringSubmatch(string(m.Raw), -1)
	ac.mu.Lock()
	defer ac.mu.Unlock()
	if len(tags) == 0 {
		ac.onUnlabelledLocked(stream, m)
		return
	}
	wrong := func(why string) { ac.t.Errorf("%s on %s: %s: %s", ac.name, stream, why, m.Raw) }
	tag := tags[0]
	number, _ := strconv.Atoi(tag[2])
	n, _ := strconv.Atoi(tag[3])
	late := tag[4] == "true"
	c := ac.calls[number]
	switch {
	case tag[1] != ac.name:
		wrong("message of the other client")
		return
	case c == nil || c.idleCall:
		wrong("unknown call")
		return
	}
	kind := map[string]string{
		"": "response", "notifications/progress": "progress", "notifications/message": "log",
		"elicitation/create": "elicit", "sampling/createMessage": "sample", "roots/list": "roots",
	}[m.Method]
	key := tag[1] + tag[2] + "/" + tag[3] + kind
	if before := ac.streams[key]; before != "" {
		wrong("received before, by " + before)
	}
	ac.streams[key] = ac.name + " on " + stream
	ac.counts[kind]++
	switch kind {
	case "response":
		c.responses++
		if late || string(m.ID) != c.id() || stream != c.id() {
			wrong("not the response to call " + c.id())
		}
		var result struct{ StructuredContent responseCounts }
		if err := json.Unmarshal(m.Result, &result); err != nil {
			wrong(err.Error())
		}
		c.result = result.StructuredContent
	case "progress":
		var params struct{ ProgressToken json.RawMessage }
		json.Unmarshal(m.Params, &params)
		// While a call is being cancelled, progress may come on the GET stream, because the
		// call's stream has ended.
		if late || stream != c.id() && !(c.cancelled && stream == "GET") ||
			string(params.ProgressToken) != c.token() || c.responses > 0 {
			wrong("not progress of call " + c.id())
		}
	case "log":
	case "elicit", "sample", "roots":
		if ac.requestIDs[string(m.ID)] {
			wrong("duplicate request id")
		}
		ac.requestIDs[string(m.ID)] = true
		ac.client.streams.Go(func() { ac.respond(kind, tag[0], m) })
	default:
		wrong("unexpected method")
		return
	}
	c.received[kind] = append(c.received[kind], n)
	if !late && kind != "progress" && kind != "response" && stream != "GET" &&
		ac.calls[atoi(stream)] == nil {
		wrong("unknown stream")
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// onUnlabelledLocked handles a message without a label.
func (ac *attributionClient) onUnlabelledLocked(stream string, m message) {
	switch {
	case m.Method == "" && m.Error == nil && string(m.ID) == stream &&
		(stream == "" || ac.calls[atoi(stream)] != nil && ac.calls[atoi(stream)].idleCall):
		ac.calls[atoi(stream)].responses++
	case m.Method == "" && string(m.ID) == "-1":
	case strings.HasSuffix(m.Method, "/list_changed"):
	case m.Method == "notifications/cancelled":
		var params struct{ RequestID json.RawMessage }
		json.Unmarshal(m.Params, &params)
		// May precede the request itself, which is on another stream.
		ac.cancelledIDs = append(ac.cancelledIDs, string(params.RequestID))
		ac.counts["cancelled"]++
	default:
		ac.t.Errorf("%s on %s: unexpected message: %s", ac.name, stream, m.Raw)
	}
}

// respond responds to a request of the backend with the client's name.
func (ac *attributionClient) respond(kind, tag string, m message) {
	by := "by=" + ac.name + " " + tag
	result := map[string]string{
		"elicit": `{"action":"accept","content":{"by":"` + by + `"}}`,
		"sample": `{"role":"assistant","model":"m","content":{"type":"text","text":"` + by + `"}}`,
		"roots":  `{"roots":[{"uri":"file:///","name":"` + by + `"}]}`,
	}[kind]
	if err := ac.client.post("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+
		`}`); err != nil {
		ac.t.Errorf("%s responds: %v", ac.name, err)
	}
}
