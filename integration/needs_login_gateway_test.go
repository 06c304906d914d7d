//go:build unix

package integration

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
)

// loginNoticed is the time in which a running gateway uses the login of another process, on a busy
// machine.
const loginNoticed = 10 * time.Second

// callsFail checks that a call fails with the command to run, and that it did not run.
func callsFail(t testing.TB, c caller, tool string) {
	t.Helper()
	m := callTool(c, tool, `{"id":"refused"}`)
	if !strings.Contains(refusal(m), "gateway login notes") {
		t.Errorf("%s without a login: %s", tool, m.Raw)
	}
}

// awaitCalls waits until a call succeeds.
func awaitCalls(t testing.TB, c caller, tool, arguments string) message {
	t.Helper()
	var m message
	if !poll(loginNoticed, func() bool {
		m = callTool(c, tool, arguments)
		return m.Result != nil && refusal(m) == ""
	}) {
		t.Fatalf("%s after the login: %s", tool, m.Raw)
	}
	return m
}

// The log of a gateway names the command once, and not for each call.
func checkLoginLog(t testing.TB, gw *rawClient) {
	t.Helper()
	logs := gw.logs()
	if n := strings.Count(logs, "backend needs a login"); n != 1 {
		t.Errorf("the log has the warning %d times", n)
	}
	for line := range strings.SplitSeq(logs, "\n") {
		if strings.Contains(line, "backend needs a login") &&
			!strings.Contains(line, "gateway login notes") {
			t.Errorf("without the command: %s", line)
		}
	}
}

func TestNeedsLogin_StdioClient(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	gw := s.start()
	gw.initialize("2025-11-25")
	if got := names(listTools(t, gw)); len(got) != 4 || !slices.Contains(got, "notes__login") {
		t.Errorf("tools before the login: %q", got)
	}
	for range 20 {
		callsFail(t, gw, "notes__read")
		if m := callTool(gw, "now", `{}`); m.Result == nil {
			t.Errorf("the other backend: %s", m.Raw)
		}
	}
	checkLoginLog(t, gw)
	s.logIn("notes")
	began := time.Now()
	gw.await("list_changed", loginNoticed, func(m message) bool {
		return m.Method == "notifications/tools/list_changed"
	})
	t.Logf("list_changed %v after the login", time.Since(began).Round(time.Millisecond))
	if got := names(listTools(t, gw)); !slices.Contains(got, "read") {
		t.Errorf("tools after the login: %q", got)
	}
	if m := callTool(gw, "read", `{"id":"1"}`); m.Result == nil || p.Executions("1") != 1 {
		t.Errorf("the call after the login: %s; it ran %d times", m.Raw, p.Executions("1"))
	}
	// the user logs out in another process, and in again
	s.run("logout", "notes").expect(t, 0, "revoked")
	if !poll(loginNoticed, func() bool {
		return strings.Contains(refusal(callTool(gw, "read", `{}`)), "gateway login notes")
	}) {
		t.Error("the logout is not noticed")
	}
	s.logIn("notes")
	awaitCalls(t, gw, "read", `{}`)
	if n := p.Executions("refused"); n != 0 {
		t.Errorf("%d calls without a login ran", n)
	}
}

// A running gateway notices the logout of another process without a call.
func TestLogout_IsNoticedWithoutACall(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]oidctest.ServerOptions{
		"modern": {}, "sessions": {Sessions: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t, oidctest.Options{}, o)
			s := newSetup(t, nil, demo, p.backend("notes"))
			s.logIn("notes")
			gw := s.start()
			gw.initialize("2025-11-25")
			awaitCalls(t, gw, "read", `{}`)
			s.run("logout", "notes").expect(t, 0, "revoked")
			if !poll(loginNoticed, func() bool {
				return strings.Contains(gw.logs(), "somebody has logged out") &&
					strings.Contains(gw.logs(), "backend needs a login")
			}) {
				t.Fatalf("the logout is not noticed:\n%s", gw.logs())
			}
			checkLoginLog(t, gw)
			if m := callTool(gw, "now", `{}`); m.Result == nil {
				t.Errorf("the other backend: %s", m.Raw)
			}
		})
	}
}

func TestNeedsLogin_HTTPClientsOfBothGenerations(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	gw, url := s.serveHTTP()
	awaitReady(t, url) // a backend that needs a login does not keep the gateway from being ready
	s.run("health", url).expect(t, 0, "ok")
	changed := make(chan string, 100)
	legacy, err := dialStreams(t.Context(), http.DefaultClient, url, `{}`,
		func(_ string, m message) {
			if m.Method == "notifications/tools/list_changed" {
				changed <- "legacy"
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	defer legacy.disconnect()
	if err := legacy.openStandalone(); err != nil {
		t.Fatal(err)
	}
	err = legacy.post("1", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if err != nil {
		t.Fatal(err)
	}
	plain, modern := dialHTTP(t, url, "2025-11-25"), newRawModern(t, url, `{}`)
	listens := modern.listen("7", `{"toolsListChanged":true}`)
	for _, c := range []caller{plain, modern} {
		if got := names(listTools(t, c)); len(got) != 4 || !slices.Contains(got, "notes__login") {
			t.Errorf("tools before the login: %q", got)
		}
		callsFail(t, c, "notes__read")
		if m := callTool(c, "now", `{}`); m.Result == nil {
			t.Errorf("the other backend: %s", m.Raw)
		}
	}
	checkLoginLog(t, gw)
	s.logIn("notes")
	if m := listens.next(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("the modern client received %s", m.Raw)
	}
	select {
	case <-changed:
	case <-time.After(loginNoticed):
		t.Error("the legacy client received no list_changed")
	}
	for _, c := range []caller{plain, modern} {
		if got := names(listTools(t, c)); !slices.Contains(got, "read") {
			t.Errorf("tools after the login: %q", got)
		}
		if m := callTool(c, "read", `{}`); m.Result == nil {
			t.Errorf("the call after the login: %s", m.Raw)
		}
	}
}

// Legacy servers with a connection for each session, and servers of HTTP+SSE, are behind a token
// too.
func TestNeedsLogin_LegacyServers(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]oidctest.ServerOptions{
		"sessions": {Sessions: true}, "HTTP+SSE": {HTTPSSE: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t, oidctest.Options{}, o)
			b := p.backend("notes")
			b.Sharing = "session"
			s := newSetup(t, nil, demo, b)
			gw, url := s.serveHTTP()
			clients := []caller{dialHTTP(t, url, "2025-11-25"), dialHTTP(t, url, "2025-06-18"),
				newRawModern(t, url, `{}`)}
			for _, c := range clients {
				callsFail(t, c, "notes__read")
			}
			checkLoginLog(t, gw)
			s.logIn("notes")
			for i, c := range clients {
				awaitCalls(t, c, "read", `{"id":"`+itoa(int64(i))+`"}`)
			}
			p.provider.ExpireAccessTokens()
			for i, c := range clients {
				id := itoa(int64(10 + i))
				m := callTool(c, "read", `{"id":"`+id+`"}`)
				if m.Result == nil || p.Executions(id) != 1 {
					t.Errorf("after the expiry: %s; it ran %d times", m.Raw, p.Executions(id))
				}
			}
			if n := p.provider.Refreshes(); n != 1 {
				t.Errorf("%d refreshes", n)
			}
			// the user ends the login in the account; sessions exist at the server
			p.provider.RevokeGrants()
			for _, c := range clients {
				callsFail(t, c, "read")
			}
			s.logIn("notes")
			for _, c := range clients {
				awaitCalls(t, c, "read", `{}`)
			}
			if n := p.Executions("refused"); n != 0 {
				t.Errorf("%d calls without a login ran", n)
			}
		})
	}
}

// A backend that needs a login is changed, renamed and removed by reloads.
func TestNeedsLogin_Reload(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	client := p.provider.AddClient(oidctest.Client{ID: "mine", Auth: oidctest.AuthNone,
		RedirectURIs: []string{"http://127.0.0.1/login/callback"}})
	s := newSetup(t, nil, demo, p.backend("notes"))
	gw, url := s.serveHTTP()
	c := dialHTTP(t, url, "2025-11-25")
	callsFail(t, c, "notes__read")
	reload := func(change func(b map[string]any)) {
		t.Helper()
		before := strings.Count(gw.logs(), "configuration reloaded")
		s.editConfig(func(doc map[string]any) {
			all := doc["backends"].([]any)
			change(all[len(all)-1].(map[string]any))
		})
		gw.cmd.Process.Signal(syscall.SIGHUP)
		if !poll(waitTimeout, func() bool {
			return strings.Count(gw.logs(), "configuration reloaded") > before
		}) {
			t.Fatalf("no reload:\n%s", gw.logs())
		}
	}
	reload(func(b map[string]any) { b["oauth"].(map[string]any)["client_id"] = client.ID })
	callsFail(t, c, "notes__read")
	s.logIn("notes")
	awaitCalls(t, c, "read", `{}`)
	r := p.provider.Requests(oidctest.AuthorizationEndpoint)
	if len(r) != 1 || r[0].Form.Get("client_id") != client.ID {
		t.Errorf("authorization requests: %v", r)
	}
	// the login belongs to the client that was configured
	reload(func(b map[string]any) { delete(b["oauth"].(map[string]any), "client_id") })
	awaitCalls(t, c, "read", `{}`) // no other client is configured
	reload(func(b map[string]any) { b["oauth"].(map[string]any)["client_id"] = "another" })
	if !poll(waitTimeout, func() bool {
		return strings.Contains(refusal(callTool(c, "read", `{}`)), "gateway login notes")
	}) {
		t.Error("the login of another client is used")
	}
	// another name is another login
	reload(func(b map[string]any) {
		b["name"] = "papers"
		b["oauth"].(map[string]any)["client_id"] = client.ID
	})
	if m := callTool(c, "papers__read", `{}`); !strings.Contains(refusal(m),
		"gateway login papers") {
		t.Errorf("after the new name: no error with the command: %s", m.Raw)
	}
	s.logIn("papers")
	awaitCalls(t, c, "read", `{}`)
	s.run("logout", "papers")
	if !poll(loginNoticed, func() bool {
		return strings.Contains(refusal(callTool(c, "read", `{}`)), "gateway login papers")
	}) {
		t.Error("the logout is not noticed")
	}
	reload(func(b map[string]any) {
		clear(b)
		b["name"], b["embedded"] = "extra", "demo"
	})
	if m := callTool(c, "now", `{}`); m.Result == nil {
		t.Errorf("the other backend: %s", m.Raw)
	}
	if m := callTool(c, "papers__read", `{}`); refusal(m) == "" ||
		strings.Contains(refusal(m), "gateway login") {
		t.Errorf("a removed backend: %s", m.Raw)
	}
}

// Only the call that needs more rights fails, with the command; after the login it succeeds.
func TestStepUp_ByGatewayLogin(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{
		Scopes:     []string{"mcp:read"},
		ToolScopes: map[string][]string{"write": {"mcp:write"}}})
	s := newSetup(t, nil, p.backend("notes"))
	s.logIn("notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	awaitCalls(t, gw, "read", `{}`)
	m := callTool(gw, "write", `{"id":"w"}`)
	for _, text := range []string{"more rights", "mcp:write", "gateway login notes"} {
		if !strings.Contains(refusal(m), text) {
			t.Errorf("the error has no %q: %s", text, m.Raw)
		}
	}
	if m := callTool(gw, "read", `{}`); m.Result == nil {
		t.Errorf("another tool: %s", m.Raw)
	}
	s.logIn("notes").expect(t, 0, "notes: logged in", "2 tools")
	awaitCalls(t, gw, "write", `{"id":"w"}`)
	requests := p.provider.Requests(oidctest.AuthorizationEndpoint)
	scope := strings.Fields(requests[len(requests)-1].Form.Get("scope"))
	for _, one := range []string{"mcp:read", "mcp:write"} {
		if !slices.Contains(scope, one) {
			t.Errorf("the second login requested %q", scope)
		}
	}
	if n := p.Executions("w"); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
}

// A server that demands more scopes for each request, also to connect, is connected after a login
// of another process.
func TestStepUp_OfTheWholeServer(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{
		Scopes: []string{"mcp:all"}, BareChallenge: true})
	b := p.backend("notes")
	b.OAuth["scopes"] = []string{"mcp:some"}
	s := newSetup(t, nil, b)
	s.run("login", "notes").expect(t, 1, "more rights", "mcp:all", "gateway login notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	callsFail(t, gw, "notes__read")
	s.logIn("notes").expect(t, 0, "2 tools")
	awaitCalls(t, gw, "read", `{"id":"1"}`)
}

// Somebody moves the server to another authorization server: a new login and a new client.
func TestChangedAuthorizationServer_RunningGateway(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	second := newProvider(t, oidctest.Options{AlwaysRefresh: true})
	s := newSetup(t, nil, demo, p.backend("notes"))
	s.logIn("notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	awaitCalls(t, gw, "read", `{}`)
	before := p.provider.Counts()[oidctest.TokenEndpoint]
	p.SetProvider(second)
	m := callTool(gw, "read", `{}`)
	for _, text := range []string{"changed its authorization server", second.Issuer(),
		"gateway login notes"} {
		if !strings.Contains(refusal(m), text) {
			t.Errorf("the error has no %q: %s", text, m.Raw)
		}
	}
	if n := p.provider.Counts()[oidctest.TokenEndpoint] - before; n != 0 {
		t.Errorf("%d token requests to the old authorization server", n)
	}
	s.logIn("notes").expect(t, 0, "at "+second.Issuer())
	awaitCalls(t, gw, "read", `{"id":"1"}`)
	if second.Counts()[oidctest.RegistrationEndpoint] != 1 {
		t.Error("the client of the old authorization server is used")
	}
	for _, r := range second.Requests(oidctest.TokenEndpoint) {
		if r.Form.Get("refresh_token") != "" {
			t.Error("the old refresh token was sent to the new authorization server")
		}
	}
}

// With client credentials nobody logs in; without a state directory too.
func TestClientCredentials_RunningGateway(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"", "none"} {
		p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
		client := p.provider.AddClient(oidctest.Client{Grants: []string{"client_credentials"}})
		b := p.backend("notes")
		b.OAuth["grant"] = "client_credentials"
		b.OAuth["client_id"], b.OAuth["client_secret"] = client.ID, client.Secret
		more := map[string]any{}
		if state != "" {
			more["state"] = state
		}
		s := newSetup(t, more, b)
		s.run("check").expect(t, 0, "notes")
		gw := s.start()
		gw.initialize("2025-11-25")
		awaitCalls(t, gw, "read", `{}`)
		p.provider.ExpireAccessTokens()
		if m := callTool(gw, "read", `{"id":"1"}`); m.Result == nil || p.Executions("1") != 1 {
			t.Errorf("after the expiry: %s", m.Raw)
		}
		s.run("login", "notes").expect(t, 1, "nobody needs to log in")
		if n := len(s.loginFiles()); n != 0 {
			t.Errorf("%d stored logins", n)
		}
	}
}
