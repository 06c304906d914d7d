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
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A house is a Set whose backends the test plays, in a bubble.
type house struct {
	*backends.Set
	t    *testing.T
	log  *mcptest.Log
	ear  *ear
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned

	mu     sync.Mutex
	dialed map[string][]time.Duration // when, since the beginning
	queues map[string]chan *mcptest.Peer
	broken map[string]error // what a dial fails with
	began  time.Time
}

// plain returns the configuration of backends with these names, of the session era:
// who tests another one, or how it is found out, says so.
func plain(names ...string) []config.Backend {
	var all []config.Backend
	for _, name := range names {
		all = append(all, config.Backend{Name: name, Command: name, Enabled: true, StartTimeout: time.Minute, Generation: "legacy"})
	}
	return all
}

// inHouse runs a test of a Set that was told to start.
func inHouse(t *testing.T, o backends.Options, test func(t *testing.T, h *house)) {
	t.Helper()
	inBrokenHouse(t, nil, o, test)
}

// startErrors are the errors with which backends fail to start.
type startErrors map[string]error

// inBrokenHouse is inHouse where backends fail from the first start on.
func inBrokenHouse(t *testing.T, fail startErrors, o backends.Options, test func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, o)
		maps.Copy(h.broken, fail)
		h.Start()
		test(t, h)
	})
}

func newHouse(t *testing.T, o backends.Options) *house {
	h := &house{
		t:      t,
		ear:    &ear{},
		dialed: make(map[string][]time.Duration),
		queues: make(map[string]chan *mcptest.Peer),
		broken: make(map[string]error),
		done:   make(chan struct{}),
		began:  time.Now(),
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
		_ = h.Run(ctx, h.ear)
	}()
	t.Cleanup(func() {
		cancel()
		<-h.done
	})
	return h
}

func (h *house) dial(c config.Backend) (transport.Conn, error) {
	queue := h.queue(c.Name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialed[c.Name] = append(h.dialed[c.Name], time.Since(h.began))
	if err := h.broken[c.Name]; err != nil {
		return nil, err
	}
	conn, p := mcptest.NewPeer(h.t, c.Name)
	queue <- p
	return conn, nil
}

// queue returns the processes of a backend that were started and are not taken yet.
func (h *house) queue(name string) chan *mcptest.Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queues[name] == nil {
		h.queues[name] = make(chan *mcptest.Peer, 100)
	}
	return h.queues[name]
}

func (h *house) breakDial(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken[name] = err
}

// dials returns when a backend was dialled.
func (h *house) dials(name string) []time.Duration {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.dialed[name])
}

// next returns the next process of a backend, once there is one.
func (h *house) next(name string) *mcptest.Peer {
	h.t.Helper()
	select {
	case p := <-h.queue(name):
		return p
	case <-time.After(2 * time.Minute):
		h.t.Fatalf("backend %s was not started", name)
		return nil
	}
}

// names returns the exposed names, once everything has come to rest.
func (h *house) names() []string {
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

func (h *house) wantNames(want ...string) {
	h.t.Helper()
	if got := h.names(); !slices.Equal(got, want) {
		h.t.Errorf("listed %q, want %q", got, want)
	}
}

func (h *house) status(name string) backends.Status {
	synctest.Wait()
	for _, s := range h.Status() {
		if s.Name == name {
			return s
		}
	}
	h.t.Fatalf("no backend %s", name)
	return backends.Status{}
}

// A caller waits for one call.
type caller struct {
	mu   sync.Mutex
	ends []string
}

// Progressed implements peer.ResponseHandler.
func (c *caller) OnProgress(wire.Message) {}

// Done implements peer.ResponseHandler.
func (c *caller) OnResponse(m wire.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.ends = append(c.ends, err.Error())
	} else {
		c.ends = append(c.ends, string(m.Raw()))
	}
}

// call sends a tools/call to a backend.
func (h *house) call(backend string) (*caller, *peer.Call) {
	c := &caller{}
	p := &peer.Call{Handler: c}
	h.Send(backend, wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)), p)
	return c, p
}

// want checks how the call has ended, "" = not yet.
func (c *caller) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := ""
	if len(c.ends) > 0 {
		got = c.ends[0]
	}
	if got != want || len(c.ends) > 1 {
		t.Errorf("the call ended with %q, want %q", c.ends, want)
	}
}

// wantReason checks that the call has ended with an error that begins so.
func (c *caller) wantReason(t *testing.T, begins string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ends) != 1 || !strings.HasPrefix(c.ends[0], begins) {
		t.Errorf("the call ended with %q, want %q", c.ends, begins)
	}
}

func result(id string, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// wantProblem checks why a backend is not ready.
func (h *house) wantProblem(name, want string) {
	h.t.Helper()
	synctest.Wait()
	if err := h.status(name).Err; err == nil || err.Error() != want {
		h.t.Errorf("%s failed for %v, want %s", name, err, want)
	}
}
