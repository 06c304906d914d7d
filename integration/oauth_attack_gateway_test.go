//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
)

// A healthyLoad calls the tool now of a healthy backend all the time.
type healthyLoad struct {
	t       testing.TB
	stop    context.CancelFunc
	done    sync.WaitGroup
	calls   atomic.Int64
	longest time.Duration
}

func startHealthyLoad(t testing.TB, c caller) *healthyLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &healthyLoad{t: t, stop: cancel}
	l.done.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if m := callTool(c, "now", `{}`); m.Result == nil {
				t.Errorf("the healthy backend: %s", m.Raw)
			}
			l.longest = max(l.longest, time.Since(began))
			l.calls.Add(1)
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(cancel)
	return l
}

// check ends the load after ten calls at least, and checks that no call was slow.
func (l *healthyLoad) check() {
	l.t.Helper()
	poll(waitTimeout, func() bool { return l.calls.Load() >= 10 })
	l.stop()
	l.done.Wait()
	const most = 2 * time.Second // on a busy machine; a silent server takes 10 s
	if l.longest > most || l.calls.Load() < 10 {
		l.t.Errorf("%d calls of the healthy backend, the longest took %v", l.calls.Load(), l.longest)
	}
	l.t.Logf("%d calls of the healthy backend, the longest took %v", l.calls.Load(), l.longest)
}

// edit returns EditMetadata that sets a member of the metadata.
func edit(key string, value any) func(map[string]any) {
	return func(document map[string]any) { document[key] = value }
}

// challenges lets a server respond to each MCP request with 401, this header and a body.
func challenges(header string, body http.HandlerFunc) oidctest.ServerOptions {
	return oidctest.ServerOptions{Wrap: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", header)
			w.WriteHeader(http.StatusUnauthorized)
			if body != nil {
				body(w, r)
			}
		})
	}}
}

// endless writes until the client disconnects.
func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat("x", 1<<10)); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-time.After(10 * time.Millisecond)
	}
}

// TestMaliciousMetadata_RunningGateway has a backend for each kind of bad input. Each gets an error
// of its own, in gateway check and in calls, and a healthy backend is not affected.
func TestMaliciousMetadata_RunningGateway(t *testing.T) {
	t.Parallel()
	const oauth, token = oidctest.OAuthMetadata, oidctest.TokenEndpoint
	ten := `{"issuer":"` + strings.Repeat("x", 10<<20) + `"}`
	attacks := []struct {
		name     string
		provider oidctest.Options
		server   oidctest.ServerOptions
		faults   map[oidctest.Endpoint]oidctest.Fault
		public   bool // allow_private is not set
		want     string
	}{
		{name: "issuer", provider: oidctest.Options{
			EditMetadata: edit("issuer", "https://evil.example")},
			want: `the issuer is "https://evil.example", not`},
		{name: "resource", server: oidctest.ServerOptions{
			EditMetadata: edit("resource", "https://evil.example/mcp")},
			want: "is that of another resource"},
		{name: "loopback", public: true, want: "is not https; oauth.allow_private: true permits it"},
		{name: "linklocal", public: true, server: oidctest.ServerOptions{EditMetadata: edit(
			"authorization_servers", []string{"https://169.254.169.254/latest"})},
			want: "leads to a private, local or reserved address"},
		{name: "mapped", public: true, server: oidctest.ServerOptions{EditMetadata: edit(
			"authorization_servers", []string{"https://[::ffff:10.0.0.1]/"})},
			want: "leads to a private, local or reserved address"},
		{name: "localname", public: true, server: oidctest.ServerOptions{EditMetadata: edit(
			"authorization_servers", []string{"https://localhost:1/"})},
			want: "leads to a private, local or reserved address"},
		{name: "challenge", public: true, server: challenges(
			`Bearer resource_metadata="https://192.168.0.1/x"`, nil),
			want: "leads to a private, local or reserved address"},
		{name: "file", server: oidctest.ServerOptions{EditMetadata: edit(
			"authorization_servers", []string{"file:///etc/passwd"})}, want: "is not a URL"},
		{name: "redirect", faults: map[oidctest.Endpoint]oidctest.Fault{oauth: {Status: 302,
			Header: http.Header{"Location": {"http://127.0.0.1:1/"}}}},
			want: "redirects are not followed"},
		{name: "endless", faults: map[oidctest.Endpoint]oidctest.Fault{oauth: {Status: 200,
			Body: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", Endless: true}},
			want: "is longer than 1024 KiB"},
		{name: "large", faults: map[oidctest.Endpoint]oidctest.Fault{
			oauth: {Status: 200, Body: ten}}, want: "is longer than 1024 KiB"},
		{name: "deep", faults: map[oidctest.Endpoint]oidctest.Fault{
			oauth:                   {Status: 200, Body: strings.Repeat("[", 500000)},
			oidctest.OpenIDMetadata: {Status: 200, Body: strings.Repeat("[", 500000)}},
			want: "has no metadata"},
		{name: "pkce", provider: oidctest.Options{
			EditMetadata: edit("code_challenge_methods_supported", []string{"plain"})},
			want: "does not support PKCE"},
		{name: "script", provider: oidctest.Options{
			EditMetadata: edit("authorization_endpoint", "javascript:alert(1)")},
			want: "authorization_endpoint is not an http or https URL"},
		{name: "wrongtype", provider: oidctest.Options{EditMetadata: edit("token_endpoint", 7)},
			want: "a member has the wrong type"},
		{name: "silent", faults: map[oidctest.Endpoint]oidctest.Fault{oauth: {Hang: true}},
			want: "no answer within 10s"},
		{name: "endlessbody", server: challenges("Bearer", endless),
			want: "gateway login endlessbody"},
		{name: "longheader", server: challenges("Bearer scope=\""+strings.Repeat("s ", 100000)+`"`,
			nil), want: "gateway login longheader"},
		{name: "emptytoken", faults: map[oidctest.Endpoint]oidctest.Fault{token: {Status: 200,
			Body: `{}`}}, want: "gateway login emptytoken"},
	}
	list := []backend{demo}
	for _, a := range attacks {
		p := newProtected(t, a.provider, a.server)
		for e, fault := range a.faults {
			p.provider.SetFault(e, fault)
		}
		b := p.backend(a.name)
		if a.public {
			b.OAuth = nil
		}
		list = append(list, b)
	}
	s := newSetup(t, nil, list...)
	_, url := s.serveHTTP()
	healthy := dialHTTP(t, url, "2025-11-25")
	awaitCalls(t, healthy, "now", `{}`) // the first call waits for the lists, for catalog.wait
	load := startHealthyLoad(t, healthy)
	var all sync.WaitGroup
	for _, a := range attacks {
		all.Go(func() {
			c := newRawModern(t, url, `{}`)
			m := callTool(c, a.name+"__read", `{}`)
			if refusal(m) == "" || !strings.Contains(refusal(m), a.want) {
				t.Errorf("%s: %.400s, want %q", a.name, m.Raw, a.want)
			}
			if len(m.Raw) > 4000 {
				t.Errorf("%s: an error of %d bytes", a.name, len(m.Raw))
			}
		})
	}
	var r commandResult
	all.Go(func() { r = s.run("check") })
	all.Wait()
	load.check()
	for _, a := range attacks {
		if !strings.Contains(r.out, a.want) {
			t.Errorf("gateway check does not print %q", a.want)
		}
	}
	if t.Failed() {
		t.Logf("%.8000s", r.out)
	}
}

// Bad responses to a login and to refreshes.
func TestMaliciousTokens_RunningGateway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(tokens map[string]any)
		want string
	}{
		"1 MiB":      {edit("access_token", strings.Repeat("x", 1<<20-1000)), "longer than 32 KiB"},
		"line break": {edit("access_token", "x\r\nX-Evil: 1"), "characters that a header must not"},
		"type":       {edit("token_type", "DPoP"), `the type "DPoP"`},
		"no token":   {func(tokens map[string]any) { clear(tokens) }, "missing access_token"},
		"2 MiB":      {edit("more", strings.Repeat("x", 2<<20)), "longer than 1024 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			bad := true
			p := newProtected(t, oidctest.Options{EditTokens: func(tokens map[string]any) {
				mu.Lock()
				defer mu.Unlock()
				if bad {
					test.edit(tokens)
				}
			}}, oidctest.ServerOptions{})
			setBad := func(now bool) {
				mu.Lock()
				defer mu.Unlock()
				bad = now
			}
			s := newSetup(t, nil, demo, p.backend("notes"))
			s.run("login", "notes").expect(t, 1, test.want)
			if n := len(s.loginFiles()); n != 0 {
				t.Errorf("%d stored logins", n)
			}
			setBad(false)
			s.logIn("notes")
			gw := s.start()
			gw.initialize("2025-11-25")
			awaitCalls(t, gw, "read", `{}`)
			setBad(true)
			p.provider.ExpireAccessTokens()
			m := callTool(gw, "read", `{}`)
			if !strings.Contains(refusal(m), test.want) {
				t.Errorf("refresh: %.400s, want %q", m.Raw, test.want)
			}
			if m := callTool(gw, "now", `{}`); m.Result == nil {
				t.Errorf("the healthy backend: %s", m.Raw)
			}
		})
	}
}

// An authorization server that never answers holds 32 calls: the other backend is not affected, a
// call that is cancelled ends at once, and so does the gateway.
func TestAuthorizationServerThatNeverAnswers_RunningGateway(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]oidctest.ServerOptions{
		"modern": {}, "sessions": {Sessions: true}, "HTTP+SSE": {HTTPSSE: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t, oidctest.Options{}, o)
			s := newSetup(t, map[string]any{"limits": map[string]any{"drain": "0s"}}, demo,
				p.backend("notes"))
			s.logIn("notes")
			gw, url := s.serveHTTP()
			healthy := dialHTTP(t, url, "2025-11-25")
			awaitCalls(t, healthy, "read", `{}`)
			p.provider.SetFault(oidctest.TokenEndpoint, oidctest.Fault{Hang: true})
			p.provider.ExpireAccessTokens()
			load := startHealthyLoad(t, healthy)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var waiting sync.WaitGroup
			var ended atomic.Int64
			for range 32 {
				waiting.Go(func() {
					v, err := dialStreams(ctx, http.DefaultClient, url, `{}`, nil)
					if err == nil {
						err = v.post("1", `{"jsonrpc":"2.0","id":1,"method":"tools/call",`+
							`"params":{"name":"read","arguments":{"id":"lost"}}}`)
					}
					if err == nil {
						ended.Add(1)
					}
				})
			}
			if !poll(waitTimeout, func() bool {
				return p.Refused(http.StatusUnauthorized) > 0 &&
					p.provider.Refreshes() > 0
			}) {
				t.Fatal("no refresh")
			}
			<-time.After(300 * time.Millisecond)
			load.check()
			if n := ended.Load(); n != 0 {
				t.Errorf("%d calls ended before the authorization server answered", n)
			}
			began := time.Now()
			gw.cmd.Process.Signal(syscall.SIGTERM)
			gw.exitCode(waitTimeout)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the gateway ended after %v", took)
			} else {
				t.Logf("the gateway ended after %v", took)
			}
			cancel()
			waiting.Wait()
			if n := p.provider.Refreshes(); n != 1 {
				t.Errorf("%d refreshes", n)
			}
			if n := p.Executions("lost"); n != 0 {
				t.Errorf("%d calls ran", n)
			}
		})
	}
}

// A client cancels a call that waits for the authorization server; the response to the
// cancellation, that is, the end of the call, is not delayed.
func TestCancelledCallThatWaitsForATokenEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	s.logIn("notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	awaitCalls(t, gw, "read", `{}`)
	p.provider.SetFault(oidctest.TokenEndpoint, oidctest.Fault{Hang: true})
	p.provider.ExpireAccessTokens()
	gw.sendRequest("77", "tools/call", `{"name":"read","arguments":{"id":"77"}}`)
	if !poll(waitTimeout, func() bool { return p.provider.Refreshes() > 0 }) {
		t.Fatal("no refresh")
	}
	gw.notify("notifications/cancelled", `{"requestId":77}`)
	callTool(gw, "now", `{}`)
	began := time.Now()
	if !poll(waitTimeout, func() bool {
		for _, r := range s.records() {
			if matchesID(r.ID, json.RawMessage("77")) {
				return r.Outcome == "cancelled"
			}
		}
		return false
	}) {
		t.Errorf("the audit has no cancelled call: %+v", s.records())
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the call ended %v after its cancellation", took)
	}
	began = time.Now()
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the gateway ended after %v", took)
	}
	if n := p.Executions("77"); n != 0 {
		t.Errorf("the cancelled call ran %d times", n)
	}
}

// goroutines returns the number of goroutines of a gateway with the debug socket.
func goroutines(t testing.TB, socket string) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}, DisableKeepAlives: true}}
	res, err := client.Get("http://debug/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var use struct{ Goroutines int }
	if err := json.NewDecoder(res.Body).Decode(&use); err != nil {
		t.Fatal(err)
	}
	return use.Goroutines
}

// Each of many calls is refused with 401: the authorization server gets few requests, and nothing
// grows.
func TestManyRefusedCalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		login  bool
		public bool // the server only refuses calls
	}{
		"nobody has logged in":    {},
		"only calls need a login": {public: true},
		"each token is refused":   {login: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var access string
			refuse := make(chan struct{})
			p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{
				Wrap: func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						select {
						case <-refuse:
							r.Header.Set("Authorization", "Bearer refused")
						default:
							if test.public {
								r.Header.Set("Authorization", "Bearer "+access)
							}
						}
						next.ServeHTTP(w, r)
					})
				}})
			access = p.provider.IssueToken(oidctest.TokenSpec{Audience: []string{p.Resource()}})
			s := newSetup(t, nil, demo, p.backend("notes"))
			tool := "notes__read"
			if test.login {
				s.logIn("notes")
			}
			if test.login || test.public {
				tool = "read"
			}
			cmd := s.command()
			socket := filepath.Join(t.TempDir(), "debug")
			cmd.Env = append(cmd.Env, "GATEWAY_DEBUG="+socket)
			gw := startRaw(t, cmd)
			gw.initialize("2025-11-25")
			if tool == "read" {
				awaitCalls(t, gw, "read", `{}`)
			}
			close(refuse)
			burst := func() {
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						for n := range 20 {
							m := callTool(gw, tool, fmt.Sprintf(`{"id":"%d-%d"}`, i, n))
							if refusal(m) == "" {
								t.Errorf("not refused: %s", m.Raw)
							}
						}
					})
				}
				all.Wait()
			}
			burst()
			before := goroutines(t, socket)
			counts := p.provider.Counts()
			burst()
			if n := p.provider.Counts()[oidctest.OAuthMetadata]; n > 40 {
				t.Errorf("the metadata was fetched %d times", n)
			}
			if n := p.provider.Refreshes(); n > 30 {
				t.Errorf("%d refreshes", n)
			}
			var after int
			if !poll(waitTimeout, func() bool {
				after = goroutines(t, socket)
				return after <= before+5
			}) {
				t.Errorf("%d goroutines, before: %d", after, before)
			}
			if m := callTool(gw, "now", `{}`); m.Result == nil {
				t.Errorf("the healthy backend: %s", m.Raw)
			}
			t.Logf("%d requests were refused; requests to the authorization server: %v, then %v",
				p.Refused(http.StatusUnauthorized), counts, p.provider.Counts())
		})
	}
}
