package backends_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/wire"
)

// A loginHarness is a Set with the backend a, which needs a login. Somebody logs in by logIn.
type loginHarness struct {
	*harness
	store string

	mu    sync.Mutex
	pages int           // number of pages that were opened
	done  chan struct{} // closed when the login is completed
}

const loginURL = "https://a.example/mcp"

// withLogin runs a test with a loginHarness, and further backends. edit changes the configuration
// of a.
func withLogin(t *testing.T, o backends.Options, edit func(*config.Backend),
	test func(t *testing.T, h *loginHarness)) {
	t.Helper()
	lh := &loginHarness{store: t.TempDir(), done: make(chan struct{})}
	b := config.Backend{Name: "a", URL: loginURL, Enabled: true, StartTimeout: time.Minute,
		Generation: "legacy", Sharing: config.SharingShared}
	edit(&b)
	o.Backends = append([]config.Backend{b}, o.Backends...)
	o.Logins = oauthclient.NewStore(lh.store, nil)
	if o.LoginPage == nil {
		o.LoginPage = func(backend, session string, _ *principal.Principal,
			_ *oauthclient.Authorization) (string, <-chan struct{}, error) {
			lh.mu.Lock()
			defer lh.mu.Unlock()
			lh.pages++
			return "https://gateway.example/login/" + backend + "/" + session, lh.done, nil
		}
	}
	fail := startErrors{"a": needsLogin("nobody is logged in")}
	withFailingHarness(t, fail, o, func(t *testing.T, h *harness) {
		lh.harness = h
		synctest.Wait()
		test(t, lh)
	})
}

func needsLogin(why string) *oauthclient.LoginError {
	return &oauthclient.LoginError{Command: "gateway login a", Reason: why}
}

func unchanged(*config.Backend) {}

// grantPath returns the path of the stored login of a principal at a; nil = of the gateway.
func (h *loginHarness) grantPath(p *principal.Principal) string {
	sum := sha256.Sum256([]byte(loginURL + "\x00" + p.Key()))
	return filepath.Join(h.store, "a-"+hex.EncodeToString(sum[:8])+".json")
}

// logIn is another process that logs in: it stores the grant. The server accepts the gateway then.
func (h *loginHarness) logIn() {
	h.t.Helper()
	h.logInAs(nil)
}

func (h *loginHarness) logInAs(p *principal.Principal) {
	h.t.Helper()
	h.breakDial("a", nil)
	grant := `{"issuer":"https://i.example","secrets":{"access_token":"t0"}}`
	if err := os.WriteFile(h.grantPath(p), []byte(grant), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// endLogin ends the login: the backend needs another one.
func (h *loginHarness) endLogin() {
	h.t.Helper()
	if err := os.Remove(h.grantPath(nil)); err != nil {
		h.t.Fatal(err)
	}
	if l := h.Login("a"); !l.WantsLogin() {
		h.t.Error("the login is still used")
	} else {
		l.RequireLogin(needsLogin("revoked"))
	}
	if s := h.status("a"); s.State != backends.NeedsLogin {
		h.t.Errorf("status %+v", s)
	}
}

// A loginRecorder is a callRecorder that keeps the error.
type loginRecorder struct {
	callRecorder
	err error
}

func (c *loginRecorder) OnResponse(r contract.BackendResponse) {
	c.callRecorder.OnResponse(r)
	c.err = r.Err
}

// callLogin calls the login tool of a for a session.
func (h *loginHarness) callLogin(session string, consents contract.Consents, params string) (
	*loginRecorder, contract.BackendCall) {
	c := &loginRecorder{}
	call := h.NewCall("a", contract.BackendRequest{Session: session, Entry: "login",
		Message: wire.NewRequest("0", "tools/call", []byte(params)), Builtin: true,
		Consents: consents}, c)
	call.Send()
	return c, call
}

const loginParams = `{"name":"a__login"}`

func loggedIn(text string) string {
	return result("0", `{"content":[{"text":"Logged in to a. `+text+`","type":"text"}]}`)
}

// wantQuestion expects the question whether the user logs in, with the reason and the page.
func (c *loginRecorder) wantQuestion(t *testing.T) {
	t.Helper()
	synctest.Wait()
	q, ok := errors.AsType[*contract.QuestionError](c.err)
	if !ok || q.Asks != contract.LoggedIn || q.Done == nil ||
		!strings.Contains(q.Error(), "gateway login a") ||
		q.URL != "https://gateway.example/login/a/s" {
		t.Errorf("the call ended with %q, want the question", c.results)
	}
}

// A backend that needs a login lists one tool of the gateway until its own tools are known. A call
// of this tool is not sent; it ends with the question, and after the login with a text.
func TestLoginTool_UntilTheToolsAreKnown(t *testing.T) {
	withLogin(t, backends.Options{Backends: legacyBackends("b")}, unchanged,
		func(t *testing.T, h *loginHarness) {
			h.nextProcess("b").ServeStartup("login", "x")
			h.wantNames("a__login", "login", "x")
			want := `{"name":"login","title":"Log in to a","description":"Log in to the server a. Its tools are listed after the login.","inputSchema":{"additionalProperties":false,"type":"object"}}`
			if got := string(h.View().Tool("a__login")); got != want {
				t.Errorf("the tool is %s", got)
			}
			if r, _ := h.View().Lookup(catalog.Tools, "login"); r.Backend != "b" || r.Builtin {
				t.Errorf("login is routed as %+v", r)
			}
			s := h.status("a")
			if s.State != backends.NeedsLogin || s.Counts[catalog.Tools] != 0 || s.Listed {
				t.Errorf("status %+v", s)
			}
			if tools, known := h.ListedTools("a"); known || len(tools) > 0 {
				t.Errorf("listed %v", tools)
			}
			for name, want := range map[string]string{"a__read": "nobody is logged in", "y": ""} {
				if _, err := h.WhyUnavailable(nil, name); want == "" && err != nil ||
					want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s is unavailable because of %v", name, err)
				}
			}
			if logs := h.log.Lines("as=a__login"); len(logs) > 0 {
				t.Errorf("logged %q", logs)
			}
			h.OpenSession("s", []byte(`{}`), false)
			first, call := h.callLogin("s", 0, loginParams)
			first.wantQuestion(t)
			if call.ID() != "" || !call.SentAt().IsZero() || call.ServerKey() != "" {
				t.Error("the call was sent")
			}
			h.logIn()
			a := h.nextProcess("a")
			after, _ := h.callLogin("s", contract.LoggedIn, loginParams)
			after.want(t, "") // it waits for the list
			h.wantNames("a__login", "login", "x")
			a.ServeStartup("login", "read")
			after.want(t, loggedIn("Number of its tools: 2."))
			h.wantNames("a__login", "read", "login", "x")
			if r, _ := h.View().Lookup(catalog.Tools, "a__login"); r.Builtin {
				t.Error("the tool of the gateway is still listed")
			}
			// the caller has the list from before
			again, _ := h.callLogin("s", contract.LoggedIn, loginParams)
			again.want(t, loggedIn("Number of its tools: 2."))
			never, _ := h.callLogin("s", 0, loginParams)
			never.want(t, loggedIn("Number of its tools: 2."))
			a.ServeToolsList(mcptest.ToolsResult("login", "read")) // it is read again after a login
			a.WantNothing()
			// the tools stay listed when a login is needed again, and calls ask
			h.endLogin()
			h.wantNames("a__login", "read", "login", "x")
			if r, _ := h.View().Lookup(catalog.Tools, "a__login"); r.Builtin {
				t.Error("the tool of the gateway is listed again")
			}
		})
}

// The call waits 5 s for the list of tools; it can be cancelled meanwhile.
func TestLoginTool_WaitsBriefly(t *testing.T) {
	withLogin(t, backends.Options{}, unchanged, func(t *testing.T, h *loginHarness) {
		h.OpenSession("s", []byte(`{}`), false)
		h.logIn()
		h.nextProcess("a") // does not respond
		slow, _ := h.callLogin("s", contract.LoggedIn, loginParams)
		other, call := h.callLogin("s", contract.LoggedIn, loginParams)
		time.Sleep(5*time.Second - time.Millisecond)
		slow.want(t, "")
		call.Cancel(nil)
		other.wantErrorPrefix(t, "cancelled")
		time.Sleep(2 * time.Millisecond)
		slow.want(t, loggedIn("Its tools will be listed when it has answered."))
		h.wantNames("a__login")
		early := h.NewCall("a", contract.BackendRequest{Session: "s", Entry: "login",
			Message: wire.NewRequest("0", "tools/call", []byte(loginParams)), Builtin: true},
			&other.callRecorder)
		other.results = nil
		early.Cancel(nil)
		early.Send()
		other.wantErrorPrefix(t, "cancelled")
	})
}

// A server that refuses the login asks again.
func TestLoginTool_LoginRefusedByTheServer(t *testing.T) {
	withLogin(t, backends.Options{}, unchanged, func(t *testing.T, h *loginHarness) {
		h.OpenSession("s", []byte(`{}`), false)
		h.logIn()
		h.nextProcess("a")
		c, _ := h.callLogin("s", contract.LoggedIn, loginParams)
		c.want(t, "")
		h.endLogin()
		c.wantQuestion(t)
	})
}

// The tool cannot run as a task. A backend that was removed, or that needs no logins any more, has
// no such tool.
func TestLoginTool_OtherEnds(t *testing.T) {
	withLogin(t, backends.Options{}, unchanged, func(t *testing.T, h *loginHarness) {
		h.OpenSession("s", []byte(`{}`), false)
		task, _ := h.callLogin("s", 0, `{"name":"a__login","task":{}}`)
		task.want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found: the tool a__login cannot run as a task"}}`)
		null, _ := h.callLogin("s", 0, `{"name":"a__login","task":null}`)
		null.wantQuestion(t)
		unknown, _ := h.callLogin("", 0, loginParams)
		unknown.want(t, "it needs a login (nobody is logged in): gateway login a")
	})
	withHarness(t, backends.Options{Backends: legacyBackends("a")},
		func(t *testing.T, h *harness) {
			lh := &loginHarness{harness: h}
			h.nextProcess("a").ServeStartup("login")
			c, _ := lh.callLogin("s", 0, loginParams)
			c.want(t, contract.ErrForbidden.Error())
			removed := &callRecorder{}
			h.NewCall("gone", contract.BackendRequest{Builtin: true, Entry: "login",
				Message: wire.NewRequest("0", "tools/call", []byte(loginParams))}, removed).Send()
			removed.wantErrorPrefix(t, "it is not configured")
		})
}

// Without pages for logins, as in gateway tools and gateway check, there is no login tool.
func TestLoginTool_NotWithoutPages(t *testing.T) {
	o := backends.Options{Logins: oauthclient.NewStore("", nil), Backends: []config.Backend{
		{Name: "a", URL: loginURL, Enabled: true, Generation: "legacy"}}}
	fail := startErrors{"a": needsLogin("nobody is logged in")}
	withFailingHarness(t, fail, o, func(t *testing.T, h *harness) {
		h.wantNames()
		if s := h.status("a"); s.State != backends.NeedsLogin {
			t.Errorf("status %+v", s)
		}
	})
}

// Only a glob of tools.deny that matches login hides the tool. An allow list, and pins, do not.
func TestLoginTool_FiltersAndPins(t *testing.T) {
	for _, one := range []struct {
		tools  config.ToolSettings
		listed bool
	}{
		{config.ToolSettings{}, true},
		{config.ToolSettings{Allow: []string{"read"}}, true},
		{config.ToolSettings{Allow: []string{"login"}}, true},
		{config.ToolSettings{Deny: []string{"read"}}, true},
		{config.ToolSettings{Deny: []string{"login"}}, false},
		{config.ToolSettings{Deny: []string{"log*"}}, false},
		{config.ToolSettings{Deny: []string{"*"}}, false},
		{config.ToolSettings{Pin: config.PinBlock}, true},
		{config.ToolSettings{Pin: config.PinWarn}, true},
		{config.ToolSettings{Confirm: []string{"*"}}, true},
	} {
		edit := func(b *config.Backend) { b.Tools = one.tools }
		withLogin(t, backends.Options{}, edit, func(t *testing.T, h *loginHarness) {
			h.OpenSession("s", []byte(`{}`), false)
			c, _ := h.callLogin("s", 0, loginParams)
			if one.listed {
				h.wantNames("a__login")
				c.wantQuestion(t)
			} else {
				h.wantNames()
				c.want(t, contract.ErrForbidden.Error())
			}
			s := h.status("a")
			if len(s.Pins.New)+len(s.Pins.Changed)+len(s.Unmatched) > 0 {
				t.Errorf("%+v: status %+v", one.tools, s)
			}
			if backend, err := h.NotApproved(nil, "a__login"); err != nil {
				t.Errorf("%+v: %s: %v", one.tools, backend, err)
			}
		})
	}
}

// A profile that permits the backend shows the tool, unless it denies login. Allow lists and
// read_only do not hide it.
func TestLoginTool_Profiles(t *testing.T) {
	readOnly := config.Profile{}
	readOnly.Tools.ReadOnly = true
	allow, deny := config.Profile{}, config.Profile{}
	allow.Tools.Allow, deny.Tools.Deny = []string{"read"}, []string{"login"}
	profiles := map[string]config.Profile{
		"reader": readOnly, "some": allow, "denied": deny,
		"none": {Backends: []string{"b"}}, "a": {Backends: []string{"a"}},
	}
	o := backends.Options{Backends: legacyBackends("b"), Profiles: profiles}
	withLogin(t, o, unchanged, func(t *testing.T, h *loginHarness) {
		h.nextProcess("b").ServeStartup("login")
		synctest.Wait()
		for name, listed := range map[string]bool{"reader": true, "some": true, "denied": false,
			"none": false, "a": true, "unknown": false} {
			who := withProfiles(name)
			session := "session of " + name
			h.Set.OpenSession(session, who, []byte(`{}`), false)
			found := false
			for _, e := range h.ViewFor(who).Entries(catalog.Tools) {
				found = found || e.Exposed == "a__login" && e.Item.Builtin
			}
			c, _ := h.callLogin(session, 0, loginParams)
			_, asked := errors.AsType[*contract.QuestionError](c.err)
			if found != listed || asked != listed || !listed && c.err != contract.ErrForbidden {
				t.Errorf("%s: listed %v, %v", name, found, c.err)
			}
			r := contract.BackendRequest{Session: session, Entry: "login", Builtin: true,
				Message: wire.NewRequest("0", "tools/call", []byte(loginParams))}
			if err := h.Permits("a", r); (err == nil) != listed {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The number of tools in the result is that which the client may see.
func TestLoginTool_CountsWhatTheProfileShows(t *testing.T) {
	profile := config.Profile{}
	profile.Tools.Allow = []string{"read"}
	o := backends.Options{Profiles: map[string]config.Profile{"some": profile}}
	withLogin(t, o, unchanged, func(t *testing.T, h *loginHarness) {
		h.Set.OpenSession("s", withProfiles("some"), []byte(`{}`), false)
		h.logIn()
		h.nextProcess("a").ServeStartup("read", "write", "delete")
		synctest.Wait()
		c, _ := h.callLogin("s", contract.LoggedIn, loginParams)
		c.want(t, loggedIn("Number of its tools: 1."))
	})
}

// With oauth.per: principal, each principal has the tool until it has logged in itself.
func TestLoginTool_OfEachPrincipal(t *testing.T) {
	edit := func(b *config.Backend) { b.OAuth.Per = config.PerPrincipal }
	withLogin(t, backends.Options{}, edit, func(t *testing.T, h *loginHarness) {
		alice, bob := named("alice"), named("bob")
		h.connect("of alice", alice)
		h.connect("of bob", bob)
		time.Sleep(time.Second) // the backends start
		want := func(ofAlice, ofBob string) {
			t.Helper()
			synctest.Wait()
			if a, b := h.namesFor(alice), h.namesFor(bob); a != ofAlice || b != ofBob {
				t.Errorf("alice sees %q, bob %q", a, b)
			}
		}
		want("a__login", "a__login")
		for _, session := range []string{"of alice", "of bob"} {
			c, _ := h.callLogin(session, 0, loginParams)
			if q, ok := errors.AsType[*contract.QuestionError](c.err); !ok ||
				q.URL != "https://gateway.example/login/a/"+session {
				t.Errorf("%s: %v", session, c.err)
			}
		}
		h.logInAs(alice)
		h.nextProcess("a").ServeStartup("read")
		want("read", "a__login")
		c, _ := h.callLogin("of alice", contract.LoggedIn, loginParams)
		c.want(t, loggedIn("Number of its tools: 1."))
		c, _ = h.callLogin("of bob", 0, loginParams)
		if _, ok := errors.AsType[*contract.QuestionError](c.err); !ok {
			t.Errorf("bob: %v", c.err)
		}
		c, _ = h.callLogin("of nobody", 0, loginParams)
		c.want(t, "the session is over")
	})
}

// The secrets of a principal are reported as unused when its connections have ended.
func TestSecretsOfAnEndedInstanceAreUnused(t *testing.T) {
	secrets, unused := make(map[string]bool), make(map[string]int)
	var mu sync.Mutex
	o := backends.Options{
		OnSecret: func(owner, _ string) {
			mu.Lock()
			defer mu.Unlock()
			secrets[owner] = true
		},
		OnSecretsUnused: func(owner string) {
			mu.Lock()
			defer mu.Unlock()
			unused[owner]++
		},
	}
	edit := func(b *config.Backend) { b.OAuth.Per = config.PerPrincipal }
	withLogin(t, o, edit, func(t *testing.T, h *loginHarness) {
		alice := named("alice")
		want := func(times int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if owner := "a " + alice.Key(); !secrets[owner] || unused[owner] != times ||
				len(unused) > 1 {
				t.Errorf("secrets of %v, unused %v, want %d times", secrets, unused, times)
			}
		}
		h.connect("1", alice)
		time.Sleep(time.Second) // the backend starts
		h.logInAs(alice)
		h.nextProcess("a").ServeStartup("read")
		want(0)
		h.CloseSession("1")
		time.Sleep(20 * time.Minute)
		want(1)
		h.connect("2", alice)
		h.nextProcess("a").ServeStartup("read")
		want(1)
	})
}

// The tool is in no cache: the next run asks for the login again.
func TestLoginTool_IsNotCached(t *testing.T) {
	state := t.TempDir()
	for range 2 {
		withLogin(t, backends.Options{StateDir: state}, unchanged,
			func(t *testing.T, h *loginHarness) { h.wantNames("a__login") })
	}
	files, err := filepath.Glob(filepath.Join(state, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "Log in") {
			t.Errorf("%s has the tool", file)
		}
	}
	// with a cache, the tools of the server are listed, and the login tool is not
	withLogin(t, backends.Options{StateDir: state}, unchanged,
		func(t *testing.T, h *loginHarness) {
			h.logIn()
			h.nextProcess("a").ServeStartup("read")
			h.wantNames("read")
		})
	withLogin(t, backends.Options{StateDir: state}, unchanged,
		func(t *testing.T, h *loginHarness) { h.wantNames("read") })
}

// A reload that denies login hides the tool in place, and a reload of the backend keeps it.
func TestLoginTool_Reload(t *testing.T) {
	withLogin(t, backends.Options{}, unchanged, func(t *testing.T, h *loginHarness) {
		h.wantNames("a__login")
		b := config.Backend{Name: "a", URL: loginURL, Enabled: true, StartTimeout: time.Minute,
			Generation: "legacy", Sharing: config.SharingShared}
		apply := func() {
			t.Helper()
			<-h.startApply(change(b))
		}
		b.Tools.Deny = []string{"login"}
		apply()
		h.wantNames()
		b.Tools.Deny = nil
		apply()
		h.wantNames("a__login")
		b.StartTimeout = 2 * time.Minute // another backend
		apply()
		time.Sleep(time.Second)
		h.wantNames("a__login")
	})
}
