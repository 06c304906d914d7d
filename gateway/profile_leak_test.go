package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A leakCase is how requests of a method name an entry.
type leakCase struct {
	names  func(*leakNames) []leakName // nil = the requests name nothing
	params []string                    // members of the params, with %s for the name
	// client uses the method with a name that it may use; for the proof that the names exist
	proof string
}

// A leakName is a hidden name, and a name that does not exist. Names of the same form, except "",
// get the same response if they do not exist.
type leakName struct{ hidden, unknown, form string }

// leakNames are the names that clients with the profile reader must not be able to use.
type leakNames struct {
	tools, prompts, uris, templates []leakName
	tasks, cursors                  []leakName
}

// leakCases has the cases of each method that legacy or modern clients have.
var leakCases = map[string]leakCase{
	"initialize":               {},
	"server/discover":          {},
	"logging/setLevel":         {params: []string{`"level":"debug"`}},
	"tasks/list":               {},
	"tools/list":               {names: ofCursors, params: []string{`"cursor":%s`}},
	"prompts/list":             {names: ofCursors, params: []string{`"cursor":%s`}},
	"resources/list":           {names: ofCursors, params: []string{`"cursor":%s`}},
	"resources/templates/list": {names: ofCursors, params: []string{`"cursor":%s`}},
	"tools/call": {names: func(n *leakNames) []leakName { return n.tools }, proof: "zqwipe",
		params: []string{`"name":%s`, `"name":%s,"arguments":{"p":"x"}`, `"name":%s,"task":{}`,
			`"name":%s,"inputResponses":{"q1":{}},"requestState":"x"`}},
	"prompts/get": {names: func(n *leakNames) []leakName { return n.prompts }, proof: "zqplot",
		params: []string{`"name":%s`, `"name":%s,"arguments":{"p":"x"}`}},
	"resources/read":        {names: ofURIs, params: []string{`"uri":%s`}, proof: "mixed:zqdoc"},
	"resources/subscribe":   {names: ofURIs, params: []string{`"uri":%s`}, proof: "mixed:zqdoc"},
	"resources/unsubscribe": {names: ofURIs, params: []string{`"uri":%s`}},
	"subscriptions/listen": {names: ofURIs, params: []string{
		`"notifications":{"resourceSubscriptions":[%s]}`}},
	"completion/complete": {names: func(n *leakNames) []leakName {
		return slices.Concat(n.prompts, n.templates, n.uris)
	}, params: []string{
		`"ref":{"type":"ref/prompt","name":%s},"argument":{"name":"p","value":"v"}`,
		`"ref":{"type":"ref/resource","uri":%s},"argument":{"name":"path","value":"v"}`,
	}},
	"tasks/get":    {names: ofTasks, params: []string{`"taskId":%s`}},
	"tasks/result": {names: ofTasks, params: []string{`"taskId":%s`}},
	"tasks/cancel": {names: ofTasks, params: []string{`"taskId":%s`}},
	"tasks/update": {names: ofTasks, params: []string{`"taskId":%s,"inputResponses":{}`}},
}

func ofURIs(n *leakNames) []leakName    { return n.uris }
func ofTasks(n *leakNames) []leakName   { return n.tasks }
func ofCursors(n *leakNames) []leakName { return n.cursors }

// spellings returns the spellings of hidden names, each with an unknown name of the same form.
func spellings(names ...string) (all []leakName) {
	seen := make(map[string]bool)
	add := func(name, form string) {
		unknown := strings.NewReplacer("zq", "xj", "ZQ", "XJ", "Zq", "Xj", "zQ", "xJ",
			"%7a", "%78", "%7A", "%78", "%71", "%6a").Replace(name)
		if name != unknown && !seen[name] {
			seen[name] = true
			all = append(all, leakName{name, unknown, form})
		}
	}
	for _, name := range names {
		for form, one := range []string{name, strings.ToUpper(name), " " + name, name + " ",
			strings.ReplaceAll(name, "zq", "Zq"), strings.ReplaceAll(name, "zq", "zQ"),
			strings.ReplaceAll(name, "zq", "%7aq"), strings.ReplaceAll(name, "zq", "z%71"),
			name + "#x", name + "?x=1", name + "/", name + "/../zq", name + "\u0000",
			strings.ReplaceAll(name, "__", "_"), strings.ReplaceAll(name, "__", ".")} {
			add(one, fmt.Sprint(form))
		}
	}
	return all
}

// hiddenNames collects all names that a client of the profile reader must not use: own names,
// exposed names of the other views, aliases, and names in results of other clients.
func hiddenNames(w *leakWorld) *leakNames {
	n := new(leakNames)
	var byKind [catalog.NumKinds][]string
	for _, who := range []*leakClient{{principal: nil}, {principal: named("bob").
		WithProfile("writer")}} {
		v := w.set.ViewFor(who.principal)
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
	n.tools = spellings(append(byKind[catalog.Tools], "zqvault__unlisted", "zqvault__", "zqvault")...)
	n.prompts = spellings(byKind[catalog.Prompts]...)
	n.uris = spellings(append(byKind[catalog.Resources], "zqvault://a", "zqcloud://a/b",
		"linked:zq-mixed", "linked:zq-zqvault", "mixed-zq://a")...)
	// The template mixed://{path} matches these, and the profile denies them.
	for _, uri := range []string{"mixed://zq", "mixed://%7aq", "mixed://z%71/x", "mixed://zq#x"} {
		n.uris = append(n.uris, leakName{uri, "none:" + strings.TrimPrefix(uri, "mixed:"), ""})
	}
	n.templates = spellings(byKind[catalog.Templates]...)
	return n
}

// checkNoLeak compares the response to each request about a hidden name with the response to the
// request about an unknown name. There is one request for all unknown names of the same form.
func (c *leakClient) checkNoLeak(method string, names *leakNames) {
	t, one := c.w.t, leakCases[method]
	t.Helper()
	of := []leakName{{}}
	if one.names != nil {
		of = one.names(names)
	}
	if one.params == nil {
		one.params = []string{""}
	}
	c.w.takeRequests()
	for _, params := range one.params {
		unknownForms := make(map[string]string)
		for _, name := range of {
			hidden, unknown := params, params
			if one.names != nil {
				hidden = fmt.Sprintf(params, wire.Quote(name.hidden))
				unknown = fmt.Sprintf(params, wire.Quote(name.unknown))
			}
			got, took := c.request(method, hidden)
			want, isKnown := unknownForms[name.form]
			if !isKnown || name.form == "" {
				response, took := c.request(method, unknown)
				want = withoutName(response, name.unknown)
				unknownForms[name.form] = want
				if took != 0 {
					t.Errorf("%s %s took %v", method, unknown, took)
				}
			}
			if g := withoutName(got, name.hidden); g != want {
				t.Errorf("%s %s:\n hidden: %s\nunknown: %s", method, hidden, g, want)
			}
			if took != 0 {
				t.Errorf("%s %s took %v", method, hidden, took)
			}
			if one.names == nil && strings.Contains(string(got.Raw()), leakMark) {
				t.Errorf("%s: the response has a hidden name: %s", method, got.Raw())
			}
			if one.names != nil && withoutName(got, name.hidden)[:6] == "result" {
				t.Errorf("%s %s succeeded: %s", method, hidden, got.Raw())
			}
			requests := c.w.takeRequests()
			if requests != "" && (one.names != nil || strings.Contains(requests, leakMark)) {
				t.Fatalf("%s %s: a backend has received a request: %s", method, hidden, requests)
			}
		}
	}
	if more := c.TakeAll(); len(more) > 0 && strings.Contains(fmt.Sprint(more), leakMark) {
		t.Errorf("%s: the client got %q", method, more)
	}
}

func withoutName(m wire.Message, name string) string {
	if name == "" {
		return withoutID(m)
	}
	quoted := string(wire.Quote(name))
	return strings.ReplaceAll(withoutID(m), quoted[1:len(quoted)-1], "NAME")
}

// use lets a client use what it may use, and adds the ids and links that it has got to names.
func (c *leakClient) use(names *leakNames) {
	c.w.t.Helper()
	for _, list := range []string{"tools/list", "prompts/list", "resources/list",
		"resources/templates/list"} {
		m, _ := c.request(list, "")
		cursor, _ := wire.Lookup(m.Part(wire.PartResult), "nextCursor")
		if c.principal.ProfileKey() == "writer" && cursor != nil {
			names.cursors = append(names.cursors, leakName{wire.Unquote(cursor), "xj", "cursor"})
		}
	}
	c.request("tools/call", `"name":"link"`)
	tool := "job"
	if c.principal.ProfileKey() == "writer" {
		c.request("tools/call", `"name":"zqopen"`)
		tool = "zqjob"
	}
	m, _ := c.request("tools/call", `"name":"`+tool+`","task":{}`)
	id, _ := wire.Lookup(m.Part(wire.PartResult), "taskId")
	if !c.modern {
		id, _ = wire.Lookup(m.Part(wire.PartResult), "task", "taskId")
	}
	if id == nil {
		c.w.t.Fatalf("no task was created: %s", m.Raw())
	}
	names.tasks = append(names.tasks, leakName{wire.Unquote(id), "task-unknown", "task"})
}

// Two principals and two profiles: no method, with any spelling of a hidden name, reveals more than
// that the name is unknown, and nothing reaches a backend. The backends are ready, or the hidden
// ones are starting, or those that the client may use.
func TestProfiles_NothingLeaks(t *testing.T) {
	legacy, modern := gateway.MethodNames()
	for _, method := range slices.Concat(legacy, modern) {
		if _, ok := leakCases[method]; !ok {
			t.Errorf("the method %s has no case", method)
		}
	}
	for method := range leakCases {
		if !slices.Contains(legacy, method) && !slices.Contains(modern, method) {
			t.Errorf("there is no method %s", method)
		}
	}
	for _, state := range [][]string{nil, {"zqvault", "zqcloud"}, {"mixed", "apple", "melon"}} {
		for _, generation := range []string{"legacy", "modern"} {
			name := fmt.Sprint(generation, " client, not ready: ", state)
			methods, isModern := legacy, generation == "modern"
			if isModern {
				methods = modern
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkLeaks(t, methods, isModern, state) })
			})
		}
	}
}

func checkLeaks(t *testing.T, methods []string, modern bool, stalled []string) {
	w := newLeakWorld(t, settings{pageSize: 600})
	others := []*leakClient{w.connect("alice", "writer", modern), w.connect("bob", "writer", modern),
		w.connect("bob", "reader", modern)}
	probe, fresh := w.connect("alice", "reader", modern), w.connect("alice", "reader", modern)
	synctest.Wait()
	others[0].request("tools/list", "") // until all backends are ready
	names := hiddenNames(w)
	for _, other := range others {
		other.use(names)
	}
	own := new(leakNames)
	probe.use(own)
	if !strings.Contains(w.takeRequests(), "zqvault got tools/call") || len(names.tools) < 50 ||
		len(names.uris) < 50 || len(names.cursors) == 0 {
		t.Fatalf("the other clients have not used hidden names: %+v", names)
	}
	// a client of the profile writer can use the names
	for _, method := range methods {
		one := leakCases[method]
		if one.proof == "" {
			continue
		}
		got, _ := others[1].request(method, fmt.Sprintf(one.params[0], wire.Quote(one.proof)))
		if got.Part(wire.PartResult) == nil || w.takeRequests() == "" {
			t.Errorf("%s %s of the writer: %s", method, one.proof, got.Raw())
		}
	}
	for _, backend := range stalled {
		w.stall(backend)
	}
	time.Sleep(time.Second)
	w.takeRequests()
	probes := []*leakClient{probe}
	if len(stalled) == 0 {
		probes = append(probes, fresh) // has read no list
	}
	for _, c := range probes {
		c.TakeAll()
		for _, method := range methods {
			if method != "initialize" && (method != "tasks/list" || c == fresh) {
				c.checkNoLeak(method, names)
			}
		}
	}
	again := w.connect("alice", "reader", modern) // initialize
	if !modern {
		again.Close()
	}
}

// The result of initialize and server/discover, and all pages of all lists, have no hidden name,
// instructions or capability, also in the cache scope.
func TestProfiles_ListsAndInstructionsAreOfTheProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{pageSize: 300})
		for _, profile := range []string{"reader", "writer"} { // until all backends are ready
			w.connect("bob", profile, true).request("tools/list", "")
		}
		for _, modern := range []bool{false, true} {
			c := w.connect("alice", "reader", modern)
			var all strings.Builder
			if modern {
				all.WriteString(c.text("server/discover", ""))
			} else {
				conn := w.connect("alice", "reader", true) // a connection without initialize
				conn.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
				all.WriteString(conn.Next())
			}
			if text := all.String(); !strings.Contains(text, "about apple") ||
				strings.Contains(text, leakMark) || modern && !strings.Contains(text, `"private"`) {
				t.Errorf("modern: %v: %s", modern, text)
			}
			for _, method := range []string{"tools/list", "prompts/list", "resources/list",
				"resources/templates/list"} {
				params := ""
				for pages := 0; ; pages++ {
					m, _ := c.request(method, params)
					all.Write(m.Raw())
					cursor, _ := wire.Lookup(m.Part(wire.PartResult), "nextCursor")
					if cursor == nil {
						break
					}
					params = `"cursor":` + string(cursor)
				}
			}
			text := all.String()
			if strings.Contains(text, leakMark) || strings.Contains(text, `"public"`) {
				t.Errorf("modern: %v: %s", modern, text)
			}
			// zqvault has the bare name in the view of all clients, but not in this one
			for _, want := range []string{`"name":"same"`, `"name":"mixed__same"`} {
				if !strings.Contains(text, want) {
					t.Errorf("modern: %v: %s is missing: %s", modern, want, text)
				}
			}
		}
	})
}

// The state of a call belongs to one principal and profile.
func TestProfiles_RequestStateBelongsToProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		for _, tool := range []string{"ask", "pause"} {
			writer := w.connect("alice", "writer", true)
			writer.request("tools/list", "")
			m, _ := writer.request("tools/call", `"name":"`+tool+`"`)
			state, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
			if state == nil {
				t.Fatalf("%s: %s", tool, m.Raw())
			}
			w.takeRequests()
			params := func(name string) string {
				return fmt.Sprintf(`"name":%q,"inputResponses":{"x":{"action":"accept"},"q1":{"action":"accept"}},"requestState":%s`, name, state)
			}
			for _, other := range []*leakClient{w.connect("alice", "reader", true),
				w.connect("alice", "", true), w.connect("bob", "writer", true)} {
				got, other := other.text("tools/call", params(tool)), other.text("tools/call",
					params("zqwipe"))
				if !strings.HasPrefix(got, "error") || got != other {
					t.Errorf("%s: got %s\nwith another name: %s", tool, got, other)
				}
			}
			if requests := w.takeRequests(); requests != "" {
				t.Errorf("%s: a backend has received a request: %s", tool, requests)
			}
			if got := writer.text("tools/call", params(tool)); !strings.HasPrefix(got, "result") {
				t.Errorf("%s of the owner: %s", tool, got)
			}
		}
	})
}

// A task belongs to one principal and profile, also if the profile permits its backend.
func TestProfiles_TaskBelongsToProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		names := new(leakNames)
		writer := w.connect("alice", "writer", true)
		writer.request("tools/list", "")
		writer.use(names)
		w.takeRequests()
		id := names.tasks[0].hidden
		for _, other := range []*leakClient{w.connect("alice", "reader", true),
			w.connect("alice", "", true)} {
			for _, name := range []string{id, "unknown"} {
				if got := other.text("tasks/get", `"taskId":"`+name+`"`); !strings.Contains(got,
					"Unknown task: "+name) {
					t.Errorf("got %s", got)
				}
			}
			if got := other.text("subscriptions/listen", `"notifications":{"taskIds":["`+id+
				`"]}`); got != "acknowledged {}" {
				t.Errorf("got %s", got)
			}
		}
		if requests := w.takeRequests(); requests != "" {
			t.Errorf("a backend has received a request: %s", requests)
		}
		if got := writer.text("tasks/get", `"taskId":"`+id+`"`); !strings.HasPrefix(got, "result") {
			t.Errorf("the owner got %s", got)
		}
	})
}

// The headers of a call of a hidden tool are checked like those of an unknown tool.
func TestProfiles_HeaderValidationHidesSchemas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		writer := w.connect("bob", "writer", true)
		writer.request("tools/list", "")
		reader := w.connect("alice", "reader", true)
		reader.request("tools/list", "")
		check := func(c *leakClient, name string, param ...string) string {
			m, err := wire.Parse([]byte(modernRequest("1", "tools/call",
				fmt.Sprintf(`"name":%s,"arguments":{"p":"x"},`, wire.Quote(name)), leakClientCaps)))
			if err != nil {
				t.Fatal(err)
			}
			failure := w.gateway.ValidateHeaders(c.principal, m, func(header string) []string {
				switch header {
				case protocol.HeaderMethod:
					return []string{"tools/call"}
				case protocol.HeaderName:
					return []string{name}
				case protocol.HeaderParamPrefix + "P":
					return param
				}
				return nil
			})
			if failure == nil {
				return ""
			}
			return strings.ReplaceAll(failure.Message, name, "NAME")
		}
		for _, params := range [][]string{nil, {"x"}, {"wrong"}} {
			for _, name := range spellings("zqopen", "zqvault__zqopen", "zqwipe", "zqrain") {
				got, want := check(reader, name.hidden, params...),
					check(reader, name.unknown, params...)
				if got != want {
					t.Errorf("%s: %s\nunknown: %s", name.hidden, got, want)
				}
			}
		}
		if check(writer, "zqopen") == "" || check(writer, "zqopen", "x") != "" {
			t.Error("the header of a tool that the client may use is not checked")
		}
	})
}
