package gateway_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// The backend notes has oauth.per: principal. The process zqnotes serves alice, and the process
// mynotes serves bob. Both profiles permit the backend, so that only the login hides the entries of
// alice from bob. They have the mark.
var ownEntries = map[string][catalog.NumKinds][]string{
	"zqnotes": {{"same", "zqopen", "zqjob"}, {"same", "zqsay"}, {"zqnotes:doc"},
		{"zqnotes://{path}"}},
	"mynotes": {{"same", "open", "job"}, {"same", "say"}, {"mynotes:doc"}, {"mynotes://{path}"}},
}

var ownProfiles = map[string]config.Profile{
	"first":  {Backends: []string{"notes", "apple"}},
	"second": {Backends: []string{"notes", "melon"}, Tools: config.ProfileTools{Deny: []string{"x*"}}},
}

// newOwnWorld returns a gateway with the backends notes, apple and melon. The processes of notes
// start when their principals connect, in this order; no names = alice is the first one, and bob
// the second one. Further processes never respond.
func newOwnWorld(t *testing.T, generation string, processes ...string) *leakWorld {
	w := &leakWorld{t: t, backends: make(map[string]*leakBackend), stalled: make(map[string]bool),
		entries: maps.Clone(leakEntries)}
	maps.Copy(w.entries, ownEntries)
	w.o = settings{pageSize: 600, profiles: ownProfiles, backendSet: &w.set,
		generation: map[string]string{"melon": "modern", "notes": generation,
			"zqnotes": generation, "mynotes": generation},
		editBackends: func(o *backends.Options) { o.Backends[0].OAuth.Per = config.PerPrincipal }}
	if len(processes) == 0 {
		processes = []string{"zqnotes", "mynotes"}
	}
	queue := make(chan string, len(processes))
	for _, process := range processes {
		queue <- process
	}
	dial := func(name string) (transport.Conn, error) {
		if name == "notes" {
			select {
			case name = <-queue:
			default:
				near, silent := mcptest.NewPeer(t, name)
				t.Cleanup(silent.Close)
				return near, nil
			}
		}
		near, far := transport.Pipe()
		run := func() { w.run(name, far) }
		if w.slow.Load() {
			time.AfterFunc(time.Second, run)
		} else {
			run()
		}
		return near, nil
	}
	_, log := mcptest.NewLog()
	journal, auditor := mcptest.NewLog()
	w.journal = journal
	w.gateway = newGateway(t, w.o, []string{"notes", "apple", "melon"}, dial, log,
		slog.New(auditor.Handler()))
	return w
}

// ownNames collects all names that only alice has.
func ownNames(w *leakWorld) *leakNames {
	n := new(leakNames)
	var byKind [catalog.NumKinds][]string
	for profile := range ownProfiles {
		v := w.set.ViewFor(named("alice").WithProfile(profile))
		for k := range catalog.Kind(catalog.NumKinds) {
			for _, e := range v.Entries(k) {
				for _, name := range []string{e.Exposed, e.Item.Original,
					e.Backend + "__" + e.Item.Original} {
					if strings.Contains(name, leakMark) {
						byKind[k] = append(byKind[k], name)
					}
				}
			}
		}
	}
	n.tools = spellings(append(byKind[catalog.Tools], "notes__zqunlisted")...)
	n.prompts = spellings(byKind[catalog.Prompts]...)
	n.uris = spellings(append(byKind[catalog.Resources], "zqnotes://a", "zqnotes://a/b",
		"linked:zq-zqnotes", "linked:zqnotes")...)
	n.templates = spellings(byKind[catalog.Templates]...)
	return n
}

// useOwn lets a client of alice use what only alice has, and adds the ids that it has got to names.
func (c *leakClient) useOwn(names *leakNames) {
	t := c.w.t
	t.Helper()
	for _, list := range []string{"tools/list", "prompts/list", "resources/list",
		"resources/templates/list"} {
		m, _ := c.request(list, "")
		if cursor, _ := wire.Lookup(m.Part(wire.PartResult), "nextCursor"); cursor != nil {
			names.cursors = append(names.cursors, leakName{wire.Unquote(cursor), "xj", ""})
		}
	}
	for method, params := range map[string]string{
		"tools/call": `"name":"zqopen"`, "prompts/get": `"name":"zqsay"`,
		"resources/read": `"uri":"zqnotes://a"`,
		"completion/complete": `"ref":{"type":"ref/prompt","name":"zqsay"},` +
			`"argument":{"name":"p","value":"v"}`,
	} {
		if got := c.text(method, params); !strings.HasPrefix(got, "result") {
			t.Fatalf("%s of the owner: %s", method, got)
		}
	}
	m, _ := c.request("tools/call", `"name":"zqjob","task":{}`)
	id, _ := wire.Lookup(m.Part(wire.PartResult), "taskId")
	if !c.modern {
		id, _ = wire.Lookup(m.Part(wire.PartResult), "task", "taskId")
	}
	if id == nil && c.w.o.generation["notes"] != "modern" {
		t.Fatalf("no task was created: %s", m.Raw())
	} else if id != nil {
		names.tasks = append(names.tasks, leakName{wire.Unquote(id), "task-unknown", ""})
	}
}

// Two principals and two profiles, and a backend with oauth.per: principal: no method, with any
// spelling of a name that only another principal has, reveals more than that the name is unknown,
// and nothing reaches a backend. The connections are ready, or that of one of the two is starting:
// with a legacy backend and one profile, because that makes no other difference.
func TestOwnLogins_NothingLeaks(t *testing.T) {
	legacy, modern := gateway.MethodNames()
	for _, generation := range []string{"legacy", "modern"} {
		for _, isModern := range []bool{false, true} {
			for _, stalled := range []string{"", "zqnotes", "mynotes"} {
				methods := legacy
				if isModern {
					methods = modern
				}
				if stalled != "" && generation == "modern" {
					continue
				}
				t.Run(fmt.Sprint(generation, " backend, modern client: ", isModern, ", not ready: ",
					stalled), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						checkOwnLeaks(t, newOwnWorld(t, generation), methods, isModern, stalled)
					})
				})
			}
		}
	}
}

func checkOwnLeaks(t *testing.T, w *leakWorld, methods []string, modern bool, stalled string) {
	var others, probes []*leakClient
	for _, profile := range []string{"first", "second"} {
		c := w.connect("alice", profile, modern)
		c.request("tools/list", "") // until the backends are ready
		others = append(others, c)
	}
	for _, profile := range []string{"first", "second"} {
		c := w.connect("bob", profile, modern)
		if got := c.text("tools/list", ""); !strings.Contains(got, `"open"`) {
			t.Fatalf("bob has got no tools: %s", got)
		}
		probes = append(probes, c)
	}
	names := ownNames(w)
	for _, other := range others {
		other.useOwn(names)
	}
	if !strings.Contains(w.takeRequests(), "zqnotes got tools/call") || len(names.tools) < 10 ||
		len(names.uris) < 10 || len(names.cursors) == 0 {
		t.Fatalf("alice has not used her names: %+v", names)
	}
	if got := probes[0].text("tools/call", `"name":"open"`); !strings.Contains(got, "mynotes") ||
		!strings.Contains(w.takeRequests(), "mynotes got tools/call") {
		t.Fatalf("bob does not reach his own process: %s", got)
	}
	if b := w.backend(stalled); b != nil {
		b.Close()
	}
	time.Sleep(time.Second)
	w.takeRequests()
	if stalled != "" {
		probes = probes[:1]
	}
	for _, c := range probes {
		c.TakeAll()
		for _, method := range methods {
			if method != "initialize" && method != "tasks/list" {
				c.checkNoLeak(method, names)
			}
		}
		if requests := w.takeRequests(); strings.Contains(requests, leakMark) {
			t.Errorf("the process of alice has received: %s", requests)
		}
	}
}

// The result of initialize and server/discover, and all lists, have nothing of another principal,
// and no cache may share them; nor what a client reads.
func TestOwnLogins_ListsAreOfThePrincipalAndPrivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOwnWorld(t, "modern")
		w.connect("alice", "", true).request("tools/list", "")
		w.connect("bob", "", true).request("tools/list", "")
		for who, process := range map[string]string{"alice": "zqnotes", "bob": "mynotes"} {
			other := map[string]string{"alice": "mynotes", "bob": "zqnotes"}[who]
			c := w.connect(who, "", true)
			all := []string{c.text("server/discover", "")}
			conn := w.connect(who, "", true) // a connection without initialize
			conn.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			if got := conn.Next(); !strings.Contains(got, "about "+process) ||
				strings.Contains(got, other) {
				t.Errorf("%s: %s", who, got)
			}
			for _, method := range []string{"tools/list", "prompts/list", "resources/list",
				"resources/templates/list"} {
				for params := ""; ; {
					m, _ := c.request(method, params)
					all = append(all, string(m.Raw()))
					cursor, _ := wire.Lookup(m.Part(wire.PartResult), "nextCursor")
					if cursor == nil {
						break
					}
					params = `"cursor":` + string(cursor)
				}
			}
			all = append(all, c.text("resources/read", `"uri":"`+process+`:doc"`))
			for _, text := range all {
				if strings.Contains(text, other) || !strings.Contains(text, `"cacheScope":"private"`) ||
					strings.Contains(text, `"public"`) {
					t.Errorf("%s: %s", who, text)
				}
			}
			if text := strings.Join(all, "\n"); strings.Count(text, process) < 5 {
				t.Errorf("%s: %s", who, text)
			}
		}
	})
}

// The state of a call belongs to the principal: with the ticket of another one nothing reaches a
// process, also if both have a tool of this name.
func TestOwnLogins_RequestStateBelongsToThePrincipal(t *testing.T) {
	for generation, tool := range map[string]string{"legacy": "pause", "modern": "ask"} {
		synctest.Test(t, func(t *testing.T) {
			w := newOwnWorld(t, generation)
			for _, process := range []string{"zqnotes", "mynotes"} {
				entries := w.entries[process]
				entries[catalog.Tools] = append(slices.Clone(entries[catalog.Tools]), tool)
				w.entries[process] = entries
			}
			alice := w.connect("alice", "first", true)
			alice.request("tools/list", "")
			bob := w.connect("bob", "first", true)
			bob.request("tools/list", "")
			m, _ := alice.request("tools/call", `"name":"`+tool+`"`)
			state, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
			if state == nil {
				t.Fatalf("%s: %s", tool, m.Raw())
			}
			w.takeRequests()
			params := fmt.Sprintf(`"name":%q,"inputResponses":{"x":{"action":"accept"},`+
				`"q1":{"action":"accept"}},"requestState":%s`, tool, state)
			if got := bob.text("tools/call", params); !strings.HasPrefix(got, "error") {
				t.Errorf("bob got %s", got)
			}
			if requests := w.takeRequests(); requests != "" {
				t.Errorf("a backend has received a request: %s", requests)
			}
			if got := alice.text("tools/call", params); !strings.HasPrefix(got, "result") {
				t.Errorf("alice got %s", got)
			}
		})
	}
}

// A process cannot send anything to the client of another principal, also not by the ids of tasks
// and resources of that client, which may have the same ids at both processes.
func TestOwnLogins_MessagesReachOnlyTheirPrincipal(t *testing.T) {
	for _, generation := range []string{"legacy", "modern"} {
		synctest.Test(t, func(t *testing.T) {
			w := newOwnWorld(t, generation)
			w.connect("alice", "", false).request("tools/list", "")
			legacy, modern := w.connect("bob", "", false), w.connect("bob", "", true)
			for _, c := range []*leakClient{legacy, modern} {
				for _, list := range []string{"tools/list", "prompts/list", "resources/list"} {
					c.request(list, "")
				}
			}
			legacy.request("logging/setLevel", `"level":"debug"`)
			legacy.request("resources/subscribe", `"uri":"mynotes:doc"`)
			legacy.request("tools/call", `"name":"job","task":{}`)
			modern.request("tools/call", `"name":"job"`)
			modern.Send(modernRequest(`"listen"`, "subscriptions/listen", `"notifications":`+
				`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,`+
				`"resourceSubscriptions":["mynotes:doc"]},`, leakClientCaps))
			modern.WantNotification("notifications/subscriptions/acknowledged")
			time.Sleep(time.Second)
			for _, c := range []*leakClient{legacy, modern} {
				c.TakeAll()
			}
			from := w.backend("zqnotes")
			for n := range 4 {
				task := fmt.Sprintf("task-mynotes-%d", n)
				_ = from.Notify("notifications/tasks/status", fmt.Appendf(nil, `{"taskId":%q,`+
					`"status":"working","statusMessage":"zq","createdAt":"2026-01-01T00:00:00Z","ttl":1}`,
					task))
				related := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":%q}}`,
					task)
				_ = from.Notify("notifications/message",
					[]byte(`{"level":"error","data":"zq",`+related+`}`))
				for method, params := range map[string]string{
					"sampling/createMessage": `"messages":[],"maxTokens":1`,
					"elicitation/create": `"message":"zq",` +
						`"requestedSchema":{"type":"object","properties":{}}`,
				} {
					r := refusedRequest{t, method, make(chan struct{})}
					from.Send(wire.NewRequest("0", method, []byte("{"+params+","+related+"}")),
						&peer.Call{Handler: r})
					<-r.done
				}
			}
			_ = from.Notify("notifications/resources/updated", []byte(`{"uri":"mynotes:doc"}`))
			_ = from.Notify("notifications/message", []byte(`{"level":"error","data":"zq"}`))
			w.add("zqnotes", "zqmore")
			time.Sleep(time.Minute)
			legacy.WantNothing()
			for _, line := range modern.TakeAll() {
				t.Errorf("the modern client of bob got %s", line)
			}
		})
	}
}

// A reload that replaces the connection of a principal does not announce the lists that are missing
// until the new connection is ready, and a call meanwhile waits for it. Changed lists are
// announced.
func TestOwnLogins_ReloadAnnouncesOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOwnWorld(t, "legacy", "zqnotes", "zqnotes", "zqnotes", "mynotes")
		legacy, modern := w.connect("alice", "", false), w.connect("alice", "", true)
		for _, c := range []*leakClient{legacy, modern} {
			c.request("tools/list", "")
		}
		modern.Send(modernRequest(`"listen"`, "subscriptions/listen",
			`"notifications":{"toolsListChanged":true},`, leakClientCaps))
		modern.WantNotification("notifications/subscriptions/acknowledged")
		w.slow.Store(true)
		// All processes are those of alice. The last one has other tools.
		for i, announces := range []bool{false, false, true} {
			next := w.o.backendConfigs([]string{"notes", "apple", "melon"})
			next[0].OAuth.Per, next[0].Args = config.PerPrincipal, []string{fmt.Sprint(i)}
			if err := w.set.Apply(t.Context(), backends.Change{Backends: next,
				Catalog: w.o.catalogOptions(), CatalogWait: 3 * time.Second,
				Profiles: ownProfiles}); err != nil {
				t.Fatal(err)
			}
			tool := "zqopen"
			if announces {
				tool = "eat"
			}
			for _, c := range []*leakClient{legacy, modern} {
				if got := c.text("tools/call", `"name":"`+tool+`"`); got[:6] != "result" {
					t.Errorf("reload %d: a call ended with %s", i, got)
				}
			}
			time.Sleep(time.Minute)
			for _, c := range []*leakClient{legacy, modern} {
				if announces {
					c.WantNotification("notifications/tools/list_changed")
				}
				c.WantNothing()
			}
		}
	})
}
