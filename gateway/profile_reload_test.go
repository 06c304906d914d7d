package gateway_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/wire"
)

const elicitationAccepted = `{"action":"accept","content":{}}`

// A reload hides the backend of a call that waits for the input of a modern client: the call does
// not continue, and its tool is unknown.
func TestProfiles_ReloadEndsCallsThatWaitForInput(t *testing.T) {
	for _, one := range []struct{ tool, backend string }{{"ask", "melon"}, {"pause", "mixed"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newLeakWorld(t, settings{})
			c := w.connect("alice", "reader", true)
			c.request("tools/list", "")
			m, _ := c.request("tools/call", `"name":"`+one.tool+`"`)
			state, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
			w.takeRequests()
			w.apply(onlyBackends("apple"))
			got := c.text("tools/call", fmt.Sprintf(`"name":%q,"inputResponses":{"x":%s,"q1":%[2]s},`+
				`"requestState":%s`, one.tool, elicitationAccepted, state))
			if !strings.Contains(got, "Unknown tool: "+one.tool) {
				t.Errorf("got %s", got)
			}
			if requests := w.takeRequests(); requests != "" {
				t.Errorf("%s: a backend has received %s", one.tool, requests)
			}
		})
	}
}

// A reload hides the backend of a call in the middle of its rounds: the next round is not sent.
func TestProfiles_ReloadDuringRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		c := w.connect("alice", "reader", false)
		c.request("tools/list", "")
		c.Send(toolsCall(`"ask"`, "ask"))
		question := c.WantRequest("elicitation/create")
		w.takeRequests()
		w.apply(onlyBackends("apple"))
		c.SendResult(question.ID(), elicitationAccepted)
		m := c.NextMessage()
		for m.Kind() != wire.Response {
			m = c.NextMessage()
		}
		if !strings.Contains(string(m.Raw()), "Unknown tool: ask") || w.takeRequests() != "" {
			t.Errorf("got %s", m.Raw())
		}
	})
}

// While a call is at a backend, a reload hides the backend: the call ends there, but the backend
// can no longer ask the client or send log messages.
func TestProfiles_ReloadDuringCall(t *testing.T) {
	for _, single := range []bool{false, true} {
		for _, modern := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { hideDuringCall(t, single, modern) })
		}
	}
}

func hideDuringCall(t *testing.T, single, modern bool) {
	w := newLeakWorld(t, settings{singleClient: single})
	c := w.connect("alice", "reader", modern)
	c.request("tools/list", "")
	if modern {
		c.Send(modernRequest(`"call"`, "tools/call", `"name":"pause",`, leakClientCaps))
		if m := c.NextMessage(); !strings.Contains(string(m.Raw()), "input_required") {
			t.Errorf("got %s", m.Raw())
		}
	} else {
		c.Send(toolsCall(`"call"`, "pause"))
	}
	var question wire.ID
	if !modern {
		question = c.WantRequest("elicitation/create").ID()
	}
	w.apply(onlyBackends("apple"))
	w.backend("mixed").sendEverything(t)
	if !modern {
		c.SendResult(question, elicitationAccepted)
	}
	time.Sleep(time.Second)
	all := c.TakeAll()
	if text := fmt.Sprint(all); strings.Contains(text, leakMark) ||
		!modern && !strings.Contains(text, `"id":"call","result"`) {
		t.Errorf("single client: %v, modern: %v: got %s", single, modern, text)
	}
}

// A reload hides entries in the middle of paging: no later page has them.
func TestProfiles_ReloadDuringPaging(t *testing.T) {
	for _, modern := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newLeakWorld(t, settings{pageSize: 200})
			c := w.connect("alice", "writer", modern)
			first, _ := c.request("tools/list", "")
			cursor, _ := wire.Lookup(first.Part(wire.PartResult), "nextCursor")
			if got := c.text("tools/list", `"cursor":`+string(cursor)); !strings.Contains(got, "tools") {
				t.Fatalf("got %s", got)
			}
			profiles := maps.Clone(leakProfiles)
			profiles["writer"] = leakProfiles["reader"]
			w.apply(profiles)
			want := c.text("tools/list", `"cursor":"unknown"`)
			if got := c.text("tools/list", `"cursor":`+string(cursor)); got != want {
				t.Errorf("modern: %v: got %s\nwant %s", modern, got, want)
			}
			if got := c.text("tools/list", ""); strings.Contains(got, leakMark) {
				t.Errorf("modern: %v: got %s", modern, got)
			}
		})
	}
}

// A reload changes, and then removes, the profile of clients with lists and subscriptions.
func TestProfiles_ReloadWhileListensAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		legacy, modern := w.connect("alice", "reader", false), w.connect("alice", "reader", true)
		legacy.request("tools/list", "")
		legacy.request("resources/subscribe", `"uri":"mixed:doc"`)
		modern.request("tools/list", "")
		modern.Send(modernRequest(`"listen"`, "subscriptions/listen", `"notifications":`+
			`{"toolsListChanged":true,"resourceSubscriptions":["mixed:doc"]},`, leakClientCaps))
		modern.WantNotification("notifications/subscriptions/acknowledged")
		update := func() {
			_ = w.backend("mixed").Notify("notifications/resources/updated",
				[]byte(`{"uri":"mixed:doc"}`))
			time.Sleep(time.Second)
		}
		for _, step := range []struct {
			profiles map[string]config.Profile
			updated  bool
			tools    string
		}{
			{leakProfiles, true, "eat"},
			{onlyBackends("apple"), false, "eat"},
			{onlyBackends(), false, ""},
			{nil, false, ""},
			{leakProfiles, true, "eat"},
		} {
			w.apply(step.profiles)
			time.Sleep(time.Second)
			for _, c := range []*leakClient{legacy, modern} {
				c.TakeAll()
				got := c.text("tools/list", "")
				if !strings.Contains(got, step.tools) || strings.Contains(got, leakMark) ||
					step.tools == "" && !strings.Contains(got, `"tools":[]`) ||
					c.modern && !strings.Contains(got, `"cacheScope":"private"`) {
					t.Errorf("tools: %s", got)
				}
			}
			update()
			for _, c := range []*leakClient{legacy, modern} {
				if all := c.TakeAll(); (len(all) > 0) != step.updated {
					t.Errorf("with %v, got %v", step.profiles, all)
				}
			}
		}
	})
}

// A reload hides the backend of tasks: they are unknown, in lists too, and the client gets no
// messages about them. When the backend is permitted again, they are known.
func TestProfiles_ReloadHidesTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		for _, modern := range []bool{false, true} {
			c := w.connect("alice", "reader", modern)
			names := new(leakNames)
			c.use(names)
			id := names.tasks[0].hidden
			get := func() string { return c.text("tasks/get", `"taskId":"`+id+`"`) }
			if got := get(); !strings.HasPrefix(got, "result") {
				t.Fatalf("got %s", got)
			}
			w.apply(onlyBackends("apple", "melon"))
			time.Sleep(time.Second)
			c.TakeAll()
			w.takeRequests()
			methods := []string{"tasks/get", "tasks/cancel", "tasks/result"}
			if modern {
				methods = []string{"tasks/get", "tasks/cancel", "tasks/update"}
			}
			for _, method := range methods {
				if got := c.text(method, `"taskId":"`+id+`","inputResponses":{}`); !strings.Contains(got,
					"Unknown task: "+id) {
					t.Errorf("%s: got %s", method, got)
				}
			}
			if !modern {
				if got := c.text("tasks/list", ""); got != `result {"tasks":[]}` {
					t.Errorf("got %s", got)
				}
			}
			for method, params := range map[string]string{
				"notifications/message":      `{"level":"error","data":"x",%s}`,
				"notifications/tasks/status": `{"taskId":"` + id + `","status":"working",%s}`,
			} {
				_ = w.backend("mixed").Notify(method, fmt.Appendf(nil, params,
					`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}`))
			}
			time.Sleep(time.Second)
			c.WantNothing()
			if requests := w.takeRequests(); requests != "" {
				t.Errorf("a backend has received %s", requests)
			}
			w.apply(leakProfiles)
			if got := get(); !strings.HasPrefix(got, "result") {
				t.Errorf("got %s", got)
			}
		}
	})
}

// The user is asked about a tool that must be confirmed only if the profile permits the tool. If a
// reload hides the tool while the user is asked, it does not run.
func TestProfiles_HiddenToolIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{
			tools: map[string]config.ToolSettings{"mixed": {Confirm: []string{"*"}}}})
		c := w.connect("alice", "reader", false)
		c.request("tools/list", "")
		if got := c.text("tools/call", `"name":"zqwipe"`); got !=
			`error {"code":-32602,"message":"Unknown tool: zqwipe"}` {
			t.Errorf("got %s", got)
		}
		c.Send(toolsCall(`"call"`, "work"))
		question := c.WantRequest("elicitation/create")
		w.apply(onlyBackends("apple"))
		c.SendResult(question.ID(), `{"action":"accept","content":{"confirm":true}}`)
		m := c.NextMessage()
		for m.Kind() != wire.Response {
			m = c.NextMessage()
		}
		if !strings.Contains(string(m.Raw()), "Unknown tool: work") {
			t.Errorf("got %s", m.Raw())
		}
		if requests := w.takeRequests(); strings.Contains(requests, "tools/call") {
			t.Errorf("a backend has received %s", requests)
		}
	})
}

// A client completes the argument of a prompt that it has listed before a reload hid the backend,
// which has no completions: the prompt is unknown.
func TestProfiles_CompletionOfListedPromptIsUnknownAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		c := w.connect("alice", "reader", false)
		c.request("prompts/list", "")
		complete := func(name string) string {
			return c.text("completion/complete", `"ref":{"type":"ref/prompt","name":"`+name+
				`"},"argument":{"name":"p","value":"v"}`)
		}
		if got := complete("cook"); !strings.Contains(got, `"values":[]`) {
			t.Errorf("got %s", got)
		}
		w.apply(onlyBackends("mixed", "melon"))
		if got := complete("cook"); got != strings.ReplaceAll(complete("none"), "none", "cook") {
			t.Errorf("got %s", got)
		}
	})
}

// Names that collide in one profile do not collide in another: after a reload, a name that a client
// has listed still leads to the same backend, or is unknown.
func TestProfiles_ListedNameKeepsItsBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		c := w.connect("alice", "reader", false)
		c.request("tools/list", "")
		same, ok := w.set.ViewFor(c.principal).Lookup(catalog.Tools, "same")
		if !ok || same.Backend != "apple" {
			t.Fatalf("the name leads to %+v", same)
		}
		w.apply(onlyBackends("mixed"))
		if got := c.text("tools/call", `"name":"same"`); !strings.Contains(got,
			"Unknown tool: same") {
			t.Errorf("got %s", got)
		}
		c.request("tools/list", "")
		if got := c.text("tools/call", `"name":"same"`); !strings.Contains(got, "result of mixed") {
			t.Errorf("got %s", got)
		}
	})
}

// A name that is hidden does not count for a rate limit, and the error is that for an unknown name
// even if the limit of the hidden backend is reached.
func TestProfiles_RateLimitDoesNotRevealHiddenName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{rates: new(ratelimit.RateLimiter)}
		o.rates.SetBackends(map[string]config.Rate{"mixed": {Limit: "2/h"}})
		w := newLeakWorld(t, o)
		legacy, modern := w.connect("alice", "reader", false), w.connect("alice", "reader", true)
		legacy.request("tools/list", "")
		modern.request("tools/list", "")
		modern.request("tools/call", `"name":"link"`)
		if got := legacy.text("tools/call", `"name":"work"`); !strings.HasPrefix(got, "result") {
			t.Errorf("got %s", got)
		}
		if got := legacy.text("tools/call", `"name":"work"`); !strings.Contains(got, "rate limit") {
			t.Errorf("got %s", got)
		}
		for _, uri := range []string{"linked:zq-mixed", "linked:xj-mixed"} {
			if got := modern.text("subscriptions/listen",
				`"notifications":{"resourceSubscriptions":["`+uri+`"]}`); got != "acknowledged {}" {
				t.Errorf("%s: %s", uri, got)
			}
		}
		w.apply(onlyBackends("apple"))
		if got := legacy.text("tools/call", `"name":"work"`); got !=
			`error {"code":-32602,"message":"Unknown tool: work"}` {
			t.Errorf("got %s", got)
		}
	})
}
