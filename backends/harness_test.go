package backends_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A harness is a Set in a synctest bubble whose backends the test plays.
type harness struct {
	*backends.Set
	t       *testing.T
	log     *mcptest.Log
	clients *clientRecorder
	stop    context.CancelFunc
	done    chan struct{} // closed when Run has returned

	mu         sync.Mutex
	dialedAt   map[string][]time.Duration // times since the beginning
	queues     map[string]chan *mcptest.Peer
	dialErrors map[string]error // error of each dial; nil = none
	start      time.Time
}

// OpenSession opens a session without authentication.
func (h *harness) OpenSession(id string, capabilities []byte, modern bool) {
	h.Set.OpenSession(id, nil, capabilities, modern)
}

// legacyBackends returns the configuration of legacy backends with these names. Tests of the modern
// generation, and of the probe, change the configuration.
func legacyBackends(names ...string) []config.Backend {
	var all []config.Backend
	for _, name := range names {
		all = append(all, config.Backend{Name: name, Command: name, Enabled: true,
			StartTimeout: time.Minute, Generation: "legacy"})
	}
	return all
}

// withHarness runs a test with a started Set.
func withHarness(t *testing.T, o backends.Options, test func(t *testing.T, h *harness)) {
	t.Helper()
	withFailingHarness(t, nil, o, test)
}

// startErrors are the errors with which backends fail to start.
type startErrors map[string]error

// withFailingHarness is withHarness with backends that fail from the first start on.
func withFailingHarness(t *testing.T, fail startErrors, o backends.Options,
	test func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, o)
		maps.Copy(h.dialErrors, fail)
		h.Start()
		test(t, h)
	})
}

func newHarness(t *testing.T, o backends.Options) *harness {
	h := &harness{
		t:          t,
		clients:    &clientRecorder{},
		dialedAt:   make(map[string][]time.Duration),
		queues:     make(map[string]chan *mcptest.Peer),
		dialErrors: make(map[string]error),
		done:       make(chan struct{}),
		start:      time.Now(),
	}
	h.log, o.Log = mcptest.NewLog()
	if o.Dial == nil {
		o.Dial = h.dial
	}
	o.ClientInfo = mcp.Implementation{Name: "mcp-gateway", Version: "test"}
	o.Catalog = catalog.Options{
		Prefix: cmp.Or(o.Catalog.Prefix, catalog.PrefixOnCollision), Separator: "__", NameLimit: 50,
	}
	o.CatalogWait = cmp.Or(o.CatalogWait, 3*time.Second)
	o.MaxMessage = 1 << 20
	h.Set = backends.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() {
		defer close(h.done)
		_ = h.Run(ctx, h.clients)
	}()
	t.Cleanup(func() {
		cancel()
		<-h.done
	})
	return h
}

func (h *harness) dial(c config.Backend) (transport.Conn, error) {
	queue := h.processes(c.Name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialedAt[c.Name] = append(h.dialedAt[c.Name], time.Since(h.start))
	if err := h.dialErrors[c.Name]; err != nil {
		return nil, err
	}
	conn, p := mcptest.NewPeer(h.t, c.Name)
	queue <- p
	return conn, nil
}

// processes returns the processes of a backend that were started and not yet taken by nextProcess.
func (h *harness) processes(name string) chan *mcptest.Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queues[name] == nil {
		h.queues[name] = make(chan *mcptest.Peer, 100)
	}
	return h.queues[name]
}

func (h *harness) breakDial(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialErrors[name] = err
}

// dialTimes returns the times at which a backend was dialled, relative to the beginning.
func (h *harness) dialTimes(name string) []time.Duration {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.dialedAt[name])
}

// nextProcess waits for the next process of a backend and returns it.
func (h *harness) nextProcess(name string) *mcptest.Peer {
	h.t.Helper()
	select {
	case p := <-h.processes(name):
		return p
	case <-time.After(2 * time.Minute):
		h.t.Fatalf("backend %s was not started", name)
		return nil
	}
}

// listedTools returns the exposed names, once the goroutines are blocked.
func (h *harness) listedTools() []string {
	synctest.Wait()
	return exposed(h.View())
}

func exposed(v *catalog.View) (all []string) {
	for _, e := range v.Entries(catalog.Tools) {
		if e.Exposed != "" {
			all = append(all, e.Exposed)
		}
	}
	return all
}

func (h *harness) wantNames(want ...string) {
	h.t.Helper()
	if got := h.listedTools(); !slices.Equal(got, want) {
		h.t.Errorf("listed %q, want %q", got, want)
	}
}

func (h *harness) status(name string) backends.Status {
	synctest.Wait()
	for _, s := range h.Status() {
		if s.Name == name {
			return s
		}
	}
	h.t.Fatalf("no backend %s", name)
	return backends.Status{}
}

// A callRecorder records how a call ends.
type callRecorder struct {
	mu      sync.Mutex
	results []string
}

// OnProgress implements contract.CallHandler.
func (c *callRecorder) OnProgress(wire.Message) {}

// OnResponse implements contract.CallHandler.
func (c *callRecorder) OnResponse(r contract.BackendResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Err != nil {
		c.results = append(c.results, r.Err.Error())
	} else {
		c.results = append(c.results, string(r.Message.Raw()))
	}
}

// call sends a tools/call to a backend.
func (h *harness) call(backend string) (*callRecorder, contract.BackendCall) {
	c := &callRecorder{}
	p := h.SendCall(backend, "", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)), c)
	return c, p
}

// outcome returns the result of the call, "" = it has not ended.
func (c *callRecorder) outcome() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.results, "")
}

// want checks the result of the call, "" = it has not ended.
func (c *callRecorder) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := ""
	if len(c.results) > 0 {
		got = c.results[0]
	}
	if got != want || len(c.results) > 1 {
		t.Errorf("the call ended with %q, want %q", c.results, want)
	}
}

// wantErrorPrefix checks that the call has ended with an error that begins with this text.
func (c *callRecorder) wantErrorPrefix(t *testing.T, begins string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.results) != 1 || !strings.HasPrefix(c.results[0], begins) {
		t.Errorf("the call ended with %q, want %q", c.results, begins)
	}
}

func result(id string, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// wantError checks the error in the status of a backend.
func (h *harness) wantError(name, want string) {
	h.t.Helper()
	synctest.Wait()
	if err := h.status(name).Err; err == nil || err.Error() != want {
		h.t.Errorf("%s failed with %v, want %s", name, err, want)
	}
}

// withIdleStop returns a backend that is stopped after a minute without a call.
func withIdleStop(name string) config.Backend {
	c := legacyBackends(name)[0]
	c.IdleStop = time.Minute
	return c
}

// withUnknownGeneration returns backends without a configured generation.
func withUnknownGeneration(all ...config.Backend) []config.Backend {
	for i := range all {
		all[i].Generation = "auto"
	}
	return all
}

// refusal returns an error object that names supported revisions.
func refusal(dates string) string {
	return `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":[` + dates +
		`],"requested":"x"}}`
}

// finishModernStart plays the remaining steps of a modern start, and checks that a call contains
// client metadata.
func (h *harness) finishModernStart(p *mcptest.Peer) {
	h.t.Helper()
	p.ServeToolsList(mcptest.ToolsResult("t"))
	call, _ := h.call("a")
	m := p.WantRequest("tools/call")
	if named, _ := wire.Lookup(m.Part(wire.PartMeta),
		"io.modelcontextprotocol/protocolVersion"); string(named) != `"2026-07-28"` {
		h.t.Errorf("the call contains no client metadata: %s", m.Raw())
	}
	p.SendResult(m.ID(), `{"resultType":"complete","content":[]}`)
	call.wantResult(h.t)
	p.WantNothing()
	if s := h.status("a"); s.State != backends.Ready || s.Revision != "2026-07-28" ||
		s.Server != "scripted/1" {
		h.t.Errorf("status %+v", s)
	}
}

// finishLegacyStart plays the remaining steps of a legacy start.
func (h *harness) finishLegacyStart(p *mcptest.Peer) {
	h.t.Helper()
	p.ServeStartup("t")
	call, _ := h.call("a")
	m := p.WantRequest("tools/call")
	if m.Part(wire.PartMeta) != nil {
		h.t.Errorf("the call contains client metadata: %s", m.Raw())
	}
	p.SendResult(m.ID(), `{"content":[]}`)
	call.wantResult(h.t)
	p.WantNothing()
	if s := h.status("a"); s.State != backends.Ready || s.Revision != "2025-11-25" {
		h.t.Errorf("status %+v", s)
	}
}
