package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// The tests of leaks have these backends. Every name and text that the profile reader hides
// contains the mark "zq", so that a client of this profile must not receive the mark.
//
//	apple    legacy   reader
//	mixed    legacy   reader (a part of each list), writer
//	melon    modern   reader, writer
//	zqvault  legacy           writer
//	zqcloud  modern           writer
const leakMark = "zq"

var leakProfiles = map[string]config.Profile{
	"reader": {
		Backends:  []string{"apple", "mixed", "melon"},
		Tools:     config.ProfileTools{Deny: []string{"*zq*"}},
		Prompts:   config.Filter{Deny: []string{"*zq*"}},
		Resources: config.Filter{Deny: []string{"*zq*"}},
	},
	"writer": {Backends: []string{"zqvault", "zqcloud", "mixed", "melon"}},
}

// leakEntries are the tools, prompts, resources and templates of each backend. All backends have
// the entry "same", so that names collide differently in each profile.
var leakEntries = map[string][catalog.NumKinds][]string{
	"apple": {{"same", "eat"}, {"same", "cook"}, {"apple:doc"}, {"apple://{path}"}},
	"mixed": {{"same", "work", "job", "pause", "link", "zqwipe"}, {"same", "write", "zqplot"},
		{"mixed:doc", "mixed:zqdoc"}, {"mixed://{path}", "mixed-zq://{path}"}},
	"melon":   {{"same", "ask"}, {"same"}, {"melon:doc"}, {"melon://{path}"}},
	"zqvault": {{"same", "zqopen", "zqjob"}, {"same", "zqsay"}, {"zqvault:doc"}, {"zqvault://{path}"}},
	"zqcloud": {{"same", "zqrain"}, {"same", "zqfog"}, {"zqcloud:doc"}, {"zqcloud://{path}"}},
}

// A leakBackend responds to all requests, and records those about entries and tasks.
type leakBackend struct {
	*peer.Peer
	name   string
	modern bool
	world  *leakWorld
	tasks  atomic.Int64
}

func (b *leakBackend) HandleNotification(m wire.Message, _ peer.Origin) {
	if m.Method() == "notifications/roots/list_changed" {
		b.world.record(b.name, m)
	}
}

func (b *leakBackend) HandleRequest(r *peer.Request) {
	entries := b.world.entriesOf(b.name)
	switch method := r.Method(); method {
	case "initialize":
		b.reply(r, `"protocolVersion":"2025-11-25","capabilities":`+b.capabilities()+
			`,"serverInfo":{"name":"%[1]s","version":"1"},"instructions":"about %[1]s"`)
	case "server/discover":
		b.reply(r, `"supportedVersions":["2026-07-28"],"capabilities":`+b.capabilities()+
			`,"instructions":"about %[1]s","ttlMs":0,"cacheScope":"public"`)
	case "tools/list":
		b.replyList(r, "tools", entries[catalog.Tools], `{"name":%q,"description":"of %s",`+
			`"inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"}}}}`)
	case "prompts/list":
		b.replyList(r, "prompts", entries[catalog.Prompts], `{"name":%q,"description":"of %s"}`)
	case "resources/list":
		b.replyList(r, "resources", entries[catalog.Resources], `{"uri":%q,"name":"of %s"}`)
	case "resources/templates/list":
		b.replyList(r, "resourceTemplates", entries[catalog.Templates],
			`{"uriTemplate":%q,"name":"of %s"}`)
	case "subscriptions/listen":
		b.acknowledge(r)
	default:
		b.world.record(b.name, r.Message)
		b.serve(r)
	}
}

const leakCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`

// capabilities returns the capabilities of the backend. The backend apple has no completions.
func (b *leakBackend) capabilities() string {
	if b.name == "apple" {
		return strings.Replace(leakCapabilities, `"completions":{},`, "", 1)
	}
	return leakCapabilities
}

func (b *leakBackend) reply(r *peer.Request, members string) {
	if strings.Contains(members, "%[1]s") {
		members = fmt.Sprintf(members, b.name)
	}
	if b.modern {
		members = `"resultType":"complete",` + members
	}
	r.Reply([]byte("{" + members + "}"))
}

func (b *leakBackend) replyList(r *peer.Request, key string, names []string, format string) {
	var all []string
	for _, name := range names {
		one := fmt.Sprintf(format, name, b.name)
		if strings.HasSuffix(name, "job") {
			one = `{"execution":{"taskSupport":"optional"},` + one[1:]
		}
		all = append(all, one)
	}
	list := fmt.Sprintf("%q:[%s]", key, strings.Join(all, ","))
	if b.modern {
		list += `,"ttlMs":0,"cacheScope":"public"`
	}
	b.reply(r, list)
}

func (b *leakBackend) acknowledge(r *peer.Request) {
	filter, _ := wire.Lookup(r.Part(wire.PartParams), "notifications")
	r.Notify(wire.NewNotification("notifications/subscriptions/acknowledged",
		fmt.Appendf(nil, `{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}`,
			r.RemoteID(), filter)))
}

// serve responds to a request about an entry or a task. Some tools create a task, ask for input, or
// return links.
func (b *leakBackend) serve(r *peer.Request) {
	isTask := strings.Contains(string(r.Raw()), `"task":{`)
	responses, _ := wire.Lookup(r.Part(wire.PartParams), "inputResponses")
	retry := responses != nil
	switch name := r.Name(); {
	case r.Method() == "tools/call" && isTask && !b.modern:
		b.reply(r, fmt.Sprintf(`"task":{"taskId":"task-%[1]s-%[2]d","status":"working","ttl":600000}`,
			b.name, b.tasks.Add(1)))
	case name == "ask" && b.modern && !retry:
		r.Reply([]byte(`{"resultType":"input_required","requestState":"S","inputRequests":{"x":` +
			`{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}}}`))
	case name == "pause" && !b.modern:
		b.Send(wire.NewRequest("0", "elicitation/create",
			[]byte(`{"message":"m","requestedSchema":{"type":"object","properties":{}}}`)),
			&peer.Call{Handler: pausedCall{b, r}})
	case name == "link" || name == "zqopen":
		b.reply(r, `"content":[{"type":"resource_link","uri":"linked:zq-%[1]s","name":"x"},`+
			`{"type":"resource_link","uri":"linked:%[1]s","name":"x"}]`)
	case r.Method() == "resources/read" && b.modern:
		b.reply(r, `"contents":[],"text":"result of %[1]s","ttlMs":1000,"cacheScope":"public"`)
	case strings.HasPrefix(r.Method(), "tasks/"):
		b.reply(r, `"taskId":"task-%[1]s","status":"working","ttl":600000`)
	default:
		b.reply(r, `"text":"result of %[1]s","completion":{"values":["of %[1]s"]}`)
	}
}

type pausedCall struct {
	b *leakBackend
	r *peer.Request
}

func (pausedCall) OnProgress(wire.Message) {}

func (c pausedCall) OnResponse(wire.Message, error) { c.b.reply(c.r, `"content":[]`) }

// A leakWorld is a gateway with the backends above.
type leakWorld struct {
	t       *testing.T
	o       settings
	set     *backends.Set
	gateway *gateway.Gateway
	journal *mcptest.Log
	stalled map[string]bool // new processes of these backends never respond
	slow    atomic.Bool     // new processes of the backend notes respond after a second

	mu       sync.Mutex
	backends map[string]*leakBackend // the last process of each
	all      []*leakBackend
	entries  map[string][catalog.NumKinds][]string
	requests []string
}

func newLeakWorld(t *testing.T, o settings) *leakWorld {
	w := &leakWorld{t: t, backends: make(map[string]*leakBackend), stalled: make(map[string]bool),
		entries: maps.Clone(leakEntries)}
	o.profiles, o.backendSet = leakProfiles, &w.set
	o.generation = map[string]string{"melon": "modern", "zqcloud": "modern"}
	w.o = o
	dial := func(name string) (transport.Conn, error) {
		near, far := transport.Pipe()
		if w.stalls(name) {
			_, silent := mcptest.NewPeer(t, name)
			t.Cleanup(silent.Close)
			return near, nil
		}
		w.run(name, far)
		return near, nil
	}
	_, log := mcptest.NewLog()
	journal, auditor := mcptest.NewLog()
	w.journal = journal
	w.gateway = newGateway(t, o, leakBackends, dial, log, slog.New(auditor.Handler()))
	return w
}

var leakBackends = []string{"zqvault", "zqcloud", "apple", "mixed", "melon"}

// apply reloads the profiles.
func (w *leakWorld) apply(profiles map[string]config.Profile) {
	w.t.Helper()
	err := w.set.Apply(context.Background(), backends.Change{
		Backends: w.o.backendConfigs(leakBackends), Catalog: w.o.catalogOptions(),
		CatalogWait: 3 * time.Second, Profiles: profiles})
	if err != nil {
		w.t.Fatal(err)
	}
}

// onlyBackends are profiles of which reader permits these backends.
func onlyBackends(names ...string) map[string]config.Profile {
	all := maps.Clone(leakProfiles)
	all["reader"] = config.Profile{Backends: append([]string{}, names...)}
	return all
}

func (w *leakWorld) run(name string, conn transport.Conn) {
	b := &leakBackend{name: name, world: w,
		modern: w.o.generation[name] == "modern"}
	b.Peer = peer.New(conn, b, peer.Options{})
	w.mu.Lock()
	w.backends[name], w.all = b, append(w.all, b)
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Run(context.Background())
	}()
	w.t.Cleanup(func() {
		b.Close()
		<-done
	})
}

func (w *leakWorld) entriesOf(name string) [catalog.NumKinds][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries[name]
}

// add adds a tool to a backend, which announces the change on all connections.
func (w *leakWorld) add(backend, tool string) {
	w.mu.Lock()
	all := w.entries[backend]
	all[catalog.Tools] = append(slices.Clone(all[catalog.Tools]), tool)
	w.entries[backend] = all
	processes := slices.Clone(w.all)
	w.mu.Unlock()
	for _, b := range processes {
		if b.name == backend {
			_ = b.Notify("notifications/tools/list_changed", nil)
		}
	}
}

func (w *leakWorld) stalls(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled[name]
}

// stall lets no new process of a backend respond, and ends the current one.
func (w *leakWorld) stall(name string) {
	w.mu.Lock()
	w.stalled[name] = true
	b := w.backends[name]
	w.mu.Unlock()
	if b != nil {
		b.Close()
	}
}

func (w *leakWorld) backend(name string) *leakBackend {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.backends[name]
}

func (w *leakWorld) record(backend string, m wire.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, backend+" got "+m.Method()+" "+
		string(m.Part(wire.PartParams)))
}

// takeRequests returns what the backends have received since the last call.
func (w *leakWorld) takeRequests() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.requests, "\n")
	w.requests = nil
	return all
}

// A leakClient is a client of one principal and profile. A legacy client has a session.
type leakClient struct {
	*mcptest.Peer
	w         *leakWorld
	principal *principal.Principal
	modern    bool
	next      int
}

const leakClientCaps = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// connect connects a client of the principal with this token, in a profile; "" = none.
func (w *leakWorld) connect(token, profile string, modern bool) *leakClient {
	w.t.Helper()
	p := named(token)
	if profile != "" {
		p = p.WithProfile(profile)
	}
	conn, remote := mcptest.NewPeer(w.t, token+" "+profile)
	go func() { _ = w.gateway.Serve(context.Background(), "", p, conn) }()
	c := &leakClient{Peer: remote, w: w, principal: p, modern: modern}
	if !modern {
		c.Initialize("2025-11-25", leakClientCaps)
	}
	return c
}

// request sends a request, and returns the response and the time that it took. params contains
// members.
func (c *leakClient) request(method, params string) (wire.Message, time.Duration) {
	c.w.t.Helper()
	c.next++
	id := fmt.Sprint(c.next)
	began := time.Now()
	if c.modern {
		if params != "" {
			params += ","
		}
		c.Send(modernRequest(id, method, params, leakClientCaps))
	} else {
		c.Sendf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params)
	}
	for {
		m := c.NextMessage()
		if m.Kind() == wire.Response && string(m.ID()) == id {
			return m, time.Since(began)
		}
		if m.Method() == "notifications/subscriptions/acknowledged" {
			c.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`,
				id)
			return m, time.Since(began)
		}
		if m.Kind() == wire.Request {
			c.w.t.Fatalf("unexpected request %s", m.Raw())
		}
	}
}

// text returns the response to a request, without the id.
func (c *leakClient) text(method, params string) string {
	c.w.t.Helper()
	m, _ := c.request(method, params)
	return withoutID(m)
}

func withoutID(m wire.Message) string {
	if failure := m.Part(wire.PartError); failure != nil {
		return "error " + string(failure)
	}
	if result := m.Part(wire.PartResult); result != nil {
		return "result " + string(result)
	}
	notifications, _ := wire.Lookup(m.Part(wire.PartParams), "notifications")
	return "acknowledged " + string(notifications)
}
