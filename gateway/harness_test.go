package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/audit"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// settings are the options of a test gateway. Zero values are defaults.
type settings struct {
	prefix       catalog.Prefix
	separator    string
	nameLimit    int
	pageSize     int
	catalogWait  time.Duration // for a first list; 0 = 3 s
	startTimeout time.Duration // 0 = 60 s
	callTimeout  map[string]time.Duration
	tools        map[string]config.ToolSettings
	inFlight     int
	// max_in_flight of each backend, without a queue; 0 = 20000, as in config
	maxInFlight         int
	maxStatelessClients int
	grace               time.Duration
	drain               time.Duration // 0 = 500 ms
	stateDir            string
	maxMessage          int            // bytes; 0 = 1 MiB
	backendSet          **backends.Set // receives the Set
	mask                func(string) string
	observer            gateway.Observer // additional
	tracer              gateway.Tracer
	singleClient        bool
	sharing             map[string]string // "" = shared
	generation          map[string]string // "" = legacy
	rates               *ratelimit.RateLimiter
	profiles            map[string]config.Profile
	editBackends        func(*backends.Options) // nil = no change
	// replaces the Backends that the gateway uses; nil = none
	wrap func(gateway.Backends) gateway.Backends
}

// backendConfigs returns the configuration of the backends.
func (o *settings) backendConfigs(names []string) (all []config.Backend) {
	for _, name := range names {
		all = append(all, config.Backend{
			Name: name, Command: name, Enabled: true,
			StartTimeout: cmp.Or(o.startTimeout, time.Minute), CallTimeout: o.callTimeout[name],
			Tools:       o.tools[name],
			MaxInFlight: cmp.Or(o.maxInFlight, 20_000),
			Sharing:     config.Sharing(o.sharing[name]),
			Generation:  config.GenerationSetting(cmp.Or(o.generation[name], "legacy")),
		})
	}
	return all
}

func (o *settings) catalogOptions() catalog.Options {
	return catalog.Options{
		Prefix:    cmp.Or(o.prefix, catalog.PrefixOnCollision),
		Separator: cmp.Or(o.separator, "__"),
		NameLimit: cmp.Or(o.nameLimit, 50),
		PageSize:  o.pageSize,
	}
}

// newGateway creates a gateway as main does, with backends that dial connects to, and runs the
// gateway until the test ends.
func newGateway(t testing.TB, o settings, names []string, dial func(string) (transport.Conn, error),
	log, journal *slog.Logger) *gateway.Gateway {
	info := mcp.Implementation{Name: "mcp-gateway", Version: "test"}
	options := backends.Options{
		Backends:    o.backendConfigs(names),
		Catalog:     o.catalogOptions(),
		Profiles:    o.profiles,
		CatalogWait: cmp.Or(o.catalogWait, 3*time.Second), MaxMessage: cmp.Or(o.maxMessage, 1<<20),
		StateDir: o.stateDir, ClientInfo: info, Log: log, SingleClient: o.singleClient,
		Dial: func(c config.Backend) (transport.Conn, error) { return dial(c.Name) },
	}
	if o.editBackends != nil {
		o.editBackends(&options)
	}
	set := backends.New(options)
	if o.backendSet != nil {
		*o.backendSet = set
	}
	j := audit.New(journal, audit.Options{})
	observers := []gateway.Observer{gateway.AuditObserver(j)}
	if o.observer != nil {
		observers = append(observers, o.observer)
	}
	var used gateway.Backends = set
	if o.wrap != nil {
		used = o.wrap(set)
	}
	g := gateway.New(gateway.Options{
		Backends: used, Observers: observers, Info: info,
		MaxInFlight: o.inFlight, MaxStatelessClients: o.maxStatelessClients, Grace: o.grace,
		DrainTimeout: cmp.Or(o.drain, 500*time.Millisecond), Log: log, Mask: o.mask,
		Rates: o.rates, Tracer: o.tracer,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = set.Run(ctx, g) })
	running.Go(func() { _ = g.Run(ctx) })
	running.Go(func() { _ = j.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return g
}

// TestConversations runs the conversations in testdata, with the real package backends.
func TestConversations(t *testing.T) {
	type serve = func(context.Context, transport.Conn) error
	mcptest.RunConversations(t, "testdata", func(t *testing.T, s mcptest.GatewaySetup) serve {
		g := newGateway(t, readSettings(t, s.Config), s.Backends, s.Dial, s.Log, s.Audit)
		return func(ctx context.Context, conn transport.Conn) error {
			return g.Serve(ctx, "", nil, conn)
		}
	})
}

// readSettings parses a conversation's config section.
func readSettings(t *testing.T, c map[string]string) settings {
	o := settings{
		singleClient: true, callTimeout: make(map[string]time.Duration),
		tools:   make(map[string]config.ToolSettings),
		sharing: make(map[string]string), generation: make(map[string]string),
	}
	for key, value := range c {
		backend, ofBackend, _ := strings.Cut(key, ".")
		number, _ := strconv.Atoi(value)
		duration, _ := time.ParseDuration(value)
		tools := o.tools[backend]
		switch cmp.Or(ofBackend, key) {
		case "prefix":
			o.prefix = catalog.Prefix(value)
		case "separator":
			o.separator = value
		case "name_limit":
			o.nameLimit = number
		case "in_flight":
			o.inFlight = number
		case "wait":
			o.catalogWait = duration
		case "grace":
			o.grace = duration
		case "start_timeout":
			o.startTimeout = duration
		case "call_timeout":
			o.callTimeout[backend] = duration
		case "sharing":
			o.sharing[backend] = value
		case "era":
			o.generation[backend] = value
		case "allow":
			tools.Allow = strings.Fields(value)
		case "deny":
			tools.Deny = strings.Fields(value)
		case "confirm":
			tools.Confirm = strings.Fields(value)
		default:
			t.Fatalf("config: no such key: %s", key)
		}
		if ofBackend != "" {
			o.tools[backend] = tools
		}
	}
	return o
}

// A harness is a gateway whose backends are served by the test.
type harness struct {
	t       *testing.T
	log     *mcptest.Log
	journal *mcptest.Log
	gateway *gateway.Gateway

	queues map[string]chan *mcptest.Peer
}

// newHarness starts a gateway with backends with these names. It must be called in a synctest
// bubble.
func newHarness(t *testing.T, o settings, names ...string) *harness {
	h := &harness{t: t, queues: make(map[string]chan *mcptest.Peer)}
	var log, journal *slog.Logger
	h.log, log = mcptest.NewLog()
	h.journal, journal = mcptest.NewLog()
	for _, name := range names {
		h.queues[name] = make(chan *mcptest.Peer, 100)
	}
	dial := func(name string) (transport.Conn, error) {
		conn, p := mcptest.NewPeer(t, name)
		h.queues[name] <- p
		return conn, nil
	}
	h.gateway = newGateway(t, o, names, dial, log, journal)
	return h
}

// nextProcess waits for the next process of a backend and returns it.
func (h *harness) nextProcess(name string) *mcptest.Peer {
	h.t.Helper()
	select {
	case p := <-h.queues[name]:
		return p
	case <-time.After(time.Minute):
		h.t.Fatalf("backend %s was not started", name)
		return nil
	}
}

// connectClient connects a client; served receives the result of Serve.
func (h *harness) connectClient() (p *mcptest.Peer, served chan error) { return h.connectAs(nil) }

// connectAs connects a client with this identity.
func (h *harness) connectAs(who *principal.Principal) (p *mcptest.Peer, served chan error) {
	conn, p := mcptest.NewPeer(h.t, "client")
	served = make(chan error, 1)
	go func() { served <- h.gateway.Serve(context.Background(), "", who, conn) }()
	return p, served
}

// auditRecords returns the audit records.
func (h *harness) auditRecords() []string {
	time.Sleep(mcptest.JournalDelay)
	return h.journal.Lines("msg=call")
}

// modernMeta returns the _meta of a modern request. More contains further members.
func modernMeta(caps, more string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + caps +
		`,"io.modelcontextprotocol/clientInfo":{"name":"client","version":"9"}` + more + `}`
}

// modernRequest returns a modern request. Params contains members of the params, each followed by
// a comma.
func modernRequest(id, method, params, caps string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params,
		modernMeta(caps, ""))
}

const serverInfo = `{"name":"mcp-gateway","version":"test"}`

// completeResult returns the modern response into which a legacy backend's result is converted.
func completeResult(id, result string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":%s},%s}`, id, serverInfo, result)
}

// openLegacy starts a gateway whose only backend is legacy and has the tool ask, and connects a
// stateless client with these capabilities.
func openLegacy(t *testing.T, caps string) (h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	h = newHarness(t, settings{singleClient: true}, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", caps))
	gh = h.nextProcess("gh")
	gh.ServeStartup("ask")
	client.Want(
		`{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + serverInfo +
			`},"ttlMs":0,"cacheScope":"private","tools":[{"name":"ask","inputSchema":{"type":"object"}}]}}`)
	return h, client, gh
}

// wantInputRequired expects an input_required response and returns its requestState, unparsed.
func wantInputRequired(t *testing.T, client *mcptest.Peer, keys ...string) string {
	t.Helper()
	m := client.NextMessage()
	result := m.Part(wire.PartResult)
	if kind, _ := wire.Lookup(result, "resultType"); string(kind) != `"input_required"` {
		t.Fatalf("no input_required: %s", m.Raw())
	}
	for _, key := range keys {
		if one, _ := wire.Lookup(result, "inputRequests", key); one == nil {
			t.Fatalf("no input request %s in %s", key, m.Raw())
		}
	}
	text, _ := wire.Lookup(result, "requestState")
	if len(text) < 3 {
		t.Fatalf("no requestState in %s", m.Raw())
	}
	return string(text)
}

const clientCaps = `{"elicitation":{},"sampling":{},"roots":{}}`

func retryRequest(id, responses, state string) string {
	return modernRequest(id, "tools/call",
		`"name":"ask","arguments":{"n":9007199254740993},"inputResponses":`+responses+
			`,"requestState":`+state+`,`, clientCaps)
}

func firstRequest(id string) string {
	return modernRequest(id, "tools/call", `"name":"ask","arguments":{"n":9007199254740993},`,
		clientCaps)
}

func flipped(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

// withClientVersion returns the request with version n in its client info.
func withClientVersion(n int, request string) string {
	return strings.Replace(request, `"version":"9"`, fmt.Sprintf(`"version":"%d"`, n), 1)
}
