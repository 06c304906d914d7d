//go:build unix

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/mcptest/oidctest"
)

// An ownLogins is a gateway with the clients alice and bob, in front of a server with
// oauth.per: principal. Alice logs in there as ann, and bob as ben, who have other tools.
type ownLogins struct {
	protected
	*setup
	revision string
	tokens   map[string]string
	pages    atomic.Int32 // opened by the user of alice
	gw       *rawClient
	url      string
}

func newOwnLogins(t *testing.T, revision, pin string, sessions bool) *ownLogins {
	t.Helper()
	o := &ownLogins{revision: revision, tokens: map[string]string{
		"alice": secret(t, "token of alice"), "bob": secret(t, "token of bob")}}
	o.protected = newProtected(t, oidctest.Options{}, oidctest.ServerOptions{Sessions: sessions,
		UserTools: map[string][]string{"ann": {"anns", "common"}, "ben": {"bens", "common"}}})
	b := o.backend("notes")
	b.OAuth["per"], b.Tools = "principal", map[string]any{"pin": pin}
	var tokens []any
	for _, name := range []string{"alice", "bob"} {
		tokens = append(tokens, map[string]any{"name": name, "token": o.tokens[name]})
	}
	o.setup = newSetup(t, map[string]any{"auth": map[string]any{"tokens": tokens},
		"catalog": map[string]any{"wait": "5s"}}, demo, b)
	o.gw, o.url = o.serveHTTP()
	return o
}

// connect connects a client. The user of alice opens pages, and bob has no elicitation.
func (o *ownLogins) connect(name string) *gosdk.ClientSession {
	o.t.Helper()
	options := &gosdk.ClientOptions{}
	if name == "alice" {
		pages := &gosdk.ElicitationCapabilities{URL: &gosdk.URLElicitationCapabilities{}}
		options.Capabilities = &gosdk.ClientCapabilities{Elicitation: pages}
		options.ElicitationHandler = func(ctx context.Context, r *gosdk.ElicitRequest) (
			*gosdk.ElicitResult, error,
		) {
			o.pages.Add(1)
			resp, err := http.Get(r.Params.URL)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			page, err := io.ReadAll(resp.Body)
			if err != nil || !strings.Contains(string(page), "for alice only") {
				return nil, fmt.Errorf("the page does not say for whom it is: %s, %v", page, err)
			}
			o.provider.SetUser("ann")
			if err := openStartPage(ctx, r.Params.URL); err != nil {
				return nil, err
			}
			return &gosdk.ElicitResult{Action: "accept"}, nil
		}
	}
	client := gosdk.NewClient(&gosdk.Implementation{Name: name, Version: "1"}, options)
	session, err := client.Connect(o.t.Context(), &gosdk.StreamableClientTransport{Endpoint: o.url,
		HTTPClient: &http.Client{Transport: bearer{&http.Transport{}, o.tokens[name]}}},
		&gosdk.ClientSessionOptions{ProtocolVersion: o.revision})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { session.Close() })
	return session
}

// awaitTools waits until a client has these tools of the server.
func (o *ownLogins) awaitTools(c *gosdk.ClientSession, want ...string) {
	o.t.Helper()
	var got []string
	if !poll(loginNoticed, func() bool {
		got = nil
		list, err := c.ListTools(o.t.Context(), nil)
		for _, tool := range listOf(list) {
			if slices.Contains([]string{"anns", "bens", "common", "notes__login"}, tool.Name) {
				got = append(got, tool.Name)
			}
		}
		slices.Sort(got)
		return err == nil && slices.Equal(got, want)
	}) {
		o.t.Fatalf("listed %q, want %q", got, want)
	}
}

func listOf(r *gosdk.ListToolsResult) []*gosdk.Tool {
	if r == nil {
		return nil
	}
	return r.Tools
}

// call calls a tool and returns the text of the result or of the error.
func (o *ownLogins) call(c *gosdk.ClientSession, tool string) string {
	r, err := c.CallTool(o.t.Context(), &gosdk.CallToolParams{Name: tool})
	if err != nil {
		return err.Error()
	}
	return r.Content[0].(*gosdk.TextContent).Text
}

// wantUser checks that a call has the account of a user, after at most these further pages.
func (o *ownLogins) wantUser(c *gosdk.ClientSession, user string, pages int32) {
	o.t.Helper()
	before := o.pages.Load()
	if got := o.call(c, "common"); !strings.Contains(got, `"user":"`+user+`"`) {
		o.t.Errorf("as %s: %s", user, got)
	}
	if n := o.pages.Load() - before; n != pages {
		o.t.Errorf("%s: %d pages, want %d", user, n, pages)
	}
}

func (o *ownLogins) logInBob() {
	o.t.Helper()
	o.provider.SetUser("ben")
	o.run("login", "notes", "--principal", "bob").expect(o.t, 0, "logged in", "offers 2 tools")
}

// The tools that only some clients have are approved with the logins of these clients. The approval
// of one does not end that of another one.
func TestOwnLogins_ApproveTools(t *testing.T) {
	t.Parallel()
	o := newOwnLogins(t, legacyRevision, "block", false)
	o.provider.SetUser("ann")
	o.run("login", "notes", "--principal", "alice").expect(t, 0, "logged in")
	o.provider.SetUser("ben")
	o.run("login", "notes", "--principal", "bob").expect(t, 0, "logged in")
	alice, bob := o.connect("alice"), o.connect("bob")
	if got := o.call(alice, "anns"); !strings.Contains(got,
		"run gateway approve notes --principal alice") {
		t.Errorf("a call of a hidden tool: %s", got)
	}
	o.run("approve", "demo", "--yes", "--principal", "alice").expect(t, 2, "leave --principal out")
	o.run("approve", "notes", "--yes", "--principal", "alice").expect(t, 0, "anns", "common")
	o.awaitTools(alice, "anns", "common")
	o.awaitTools(bob, "common")
	if got, want := o.call(bob, "anns"), o.call(bob, "unknown"); strings.ReplaceAll(got, "anns",
		"unknown") != want {
		t.Errorf("an approved tool of the other client: %s\nan unknown one: %s", got, want)
	}
	o.run("approve", "notes", "--yes", "--principal", "bob").expect(t, 0, "bens")
	o.awaitTools(alice, "anns", "common")
	o.awaitTools(bob, "bens", "common")
	for _, name := range []string{"alice", "bob"} {
		o.run("approve", "notes", "--principal", name).expect(t, 0, "nothing to approve")
	}
}

// Two clients log in to one server as different users, one at the page of its own call and one by
// the command. Each has its own tools and its own account; the end of one login does not affect the
// other one, and a restart of the gateway keeps both.
func TestOwnLogins_OfTwoClients(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		for _, sessions := range []bool{false, true} {
			t.Run(fmt.Sprint(revision, ", server with sessions: ", sessions), func(t *testing.T) {
				t.Parallel()
				testOwnLogins(t, newOwnLogins(t, revision, "warn", sessions))
			})
		}
	}
}

func testOwnLogins(t *testing.T, o *ownLogins) {
	alice, bob := o.connect("alice"), o.connect("bob")
	o.awaitTools(alice, "notes__login")
	o.awaitTools(bob, "notes__login")
	if got := o.call(alice, "notes__login"); !strings.Contains(got, "Logged in to notes") ||
		o.pages.Load() != 1 {
		t.Fatalf("%d pages: %s", o.pages.Load(), got)
	}
	o.awaitTools(alice, "anns", "common")
	o.awaitTools(bob, "notes__login")
	if got, want := o.call(bob, "anns"), o.call(bob, "unknown"); strings.ReplaceAll(got, "anns",
		"unknown") != want {
		t.Errorf("a tool of the other client: %s\nan unknown one: %s", got, want)
	}
	if got := o.call(bob, "notes__login"); !strings.Contains(got,
		"gateway login notes --principal bob") {
		t.Errorf("bob is not told what to do: %s", got)
	}
	o.logInBob()
	o.awaitTools(bob, "bens", "common")
	o.awaitTools(alice, "anns", "common")
	o.wantUser(alice, "ann", 0)
	o.wantUser(bob, "ben", 0)

	refreshes := o.provider.Refreshes()
	o.provider.ExpireAccessTokensOf("ann")
	o.wantUser(bob, "ben", 0)
	o.wantUser(alice, "ann", 0)
	if n := o.provider.Refreshes() - refreshes; n != 1 {
		t.Errorf("%d refreshes for the end of one access token", n)
	}
	o.provider.RevokeGrantsOf("ann")
	o.wantUser(bob, "ben", 0)
	o.wantUser(alice, "ann", 1)
	o.run("logout", "notes", "--principal", "bob").expect(t, 0, "revoked and deleted")
	if !poll(loginNoticed, func() bool {
		return strings.Contains(o.call(bob, "common"), "gateway login notes --principal bob")
	}) {
		t.Errorf("after the logout: %s", o.call(bob, "common"))
	}
	o.wantUser(alice, "ann", 0)
	o.logInBob()
	if !poll(loginNoticed, func() bool { return strings.Contains(o.call(bob, "common"), "ben") }) {
		t.Errorf("after the login: %s", o.call(bob, "common"))
	}
	alice.Close()
	bob.Close()
	o.gw.cmd.Process.Signal(syscall.SIGTERM)
	o.gw.exitCode(waitTimeout)
	log, err := os.ReadFile(o.gw.stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alice", "bob"} {
		if !strings.Contains(string(log), "backend=notes principal="+name) {
			t.Errorf("the log does not name %s", name)
		}
	}
	checkOwnRecords(t, o)

	o.gw, o.url = o.serveHTTP()
	alice, bob = o.connect("alice"), o.connect("bob")
	o.awaitTools(alice, "anns", "common")
	o.awaitTools(bob, "bens", "common")
	o.wantUser(alice, "ann", 0)
	o.wantUser(bob, "ben", 0)
	// The gateway itself has no login.
	o.run("check").expect(t, 1, "needs login", "gateway login notes")
}

// checkOwnRecords checks that the audit records of one client have nothing of the other one.
func checkOwnRecords(t *testing.T, o *ownLogins) {
	number := map[string]int{}
	for _, r := range o.records() {
		who, other := "alice", "bens"
		if strings.Contains(r.line, `"principal":"bob"`) {
			who, other = "bob", "ann\\"
		}
		number[who]++
		if !strings.Contains(r.line, `"principal":"`+who+`"`) || strings.Contains(r.line, other) {
			t.Errorf("the record of a call of %s: %s", who, r.line)
		}
	}
	if number["alice"] < 5 || number["bob"] < 5 {
		t.Errorf("records: %v", number)
	}
}

// The commands use the login of the gateway itself, also if the file has no other backend, and say
// whose login it is.
func TestOwnLogins_CommandsUseTheLoginOfTheGateway(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	b := p.backend("notes")
	b.OAuth["per"] = "principal"
	s := newSetup(t, map[string]any{"auth": map[string]any{"tokens": []any{
		map[string]any{"name": "alice", "token": secret(t, "token of alice")}}}}, b)
	s.run("check").expect(t, 1, "needs login", "gateway login notes")
	others := "each client has a login of its own: gateway login notes --principal NAME"
	s.run("login", "notes").expect(t, 0, "Log in to notes for the gateway itself at",
		"notes: logged in for the gateway itself", "notes offers 2 tools", others)
	s.run("check").expect(t, 0, "ok")
	s.run("tools").expect(t, 0, "read", "write")
	s.run("login", "notes", "--principal", "alice").expect(t, 0, "notes: logged in for alice")
	s.run("logout", "notes", "--principal", "alice").expect(t, 0, "login for alice revoked")
	s.run("logout", "notes").expect(t, 0, "login for the gateway itself revoked", "--principal NAME")
	s.run("logout", "notes").expect(t, 1, "nobody is logged in for the gateway itself",
		"gateway logout notes --principal NAME")
}
