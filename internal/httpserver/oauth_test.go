package httpserver

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
	"mcpgateway/internal/resourceserver"
)

const audience = "https://gateway.example/mcp"

// newOAuthHarness starts an OpenID provider, and a harness that accepts its tokens and, for a
// colleague, the token "static".
func newOAuthHarness(t *testing.T, scopes ...string) (*harness, *oidctest.Provider, *logBuffer) {
	p := oidctest.New(t, oidctest.Options{Audience: []string{audience}})
	log := &logBuffer{}
	h := newHarness(t, func(o *Options) {
		o.OAuth = resourceserver.New(resourceserver.Options{
			Issuer: p.Issuer(), Audience: audience, Scopes: scopes})
		o.Tokens = []StaticToken{{Text: "static", Name: "colleague"}}
		o.Loopback, o.Hosts = true, []string{"localhost"}
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	return h, p, log
}

func bearerHeader(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

var echoRequest = requestJSON("1", "echo", "{}")

// The metadata of the gateway need no token. Browser pages can read them, and the challenge.
func TestOAuthMetadata(t *testing.T) {
	h, p, _ := newOAuthHarness(t, "read")
	want := `{"resource":"` + audience + `","authorization_servers":["` + p.Issuer() +
		`"],"scopes_supported":["read"],"bearer_methods_supported":["header"]}`
	const page = "http://localhost:6274"
	for _, path := range []string{"/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource/mcp/"} {
		res := h.want(testRequest{method: "GET", path: path}.withHeader("Origin", page), 200, want)
		if res.Header.Get("Content-Type") != "application/json" ||
			res.Header.Get("Access-Control-Allow-Origin") != page {
			t.Errorf("%v", res.Header)
		}
		h.want(testRequest{method: "HEAD", path: path}, 200, "")
		h.want(testRequest{method: "POST", path: path, body: "{}"}, 405, "*")
		h.want(testRequest{method: "OPTIONS", path: path}.withHeader("Origin", page), 204, "")
		h.want(testRequest{method: "GET", path: path}.withHeader("Origin", "http://evil.example"),
			403, "*")
	}
	res := h.want(testRequest{body: echoRequest}.withHeader("Origin", page), 401, "*")
	if !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") ||
		res.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("%v", res.Header)
	}
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/register",
		"/.well-known/oauth-protected-resource/other"} {
		if res, body := h.do(testRequest{method: "GET", path: path}); res.StatusCode != 404 ||
			!strings.Contains(body, resourceserver.MetadataPath) {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
}

// A request without a token, or with one that is not valid, gets a challenge with the URL of the
// metadata. Each wrong token gets its own reason, and no other client is affected.
func TestOAuthChallenges(t *testing.T) {
	h, p, log := newOAuthHarness(t, "read", "tools")
	const where = `scope="read tools", resource_metadata=` +
		`"https://gateway.example/.well-known/oauth-protected-resource/mcp"`
	scopes := []string{"tools", "read"}
	issue := func(spec oidctest.TokenSpec) string {
		spec.Scopes = scopes
		return p.IssueToken(spec)
	}
	valid := issue(oidctest.TokenSpec{User: "ann"})
	for name, tt := range map[string]struct {
		token, reason string
	}{
		"no token":       {"", ""},
		"wrong token":    {"something", "not a JWT"},
		"wrong issuer":   {issue(oidctest.TokenSpec{Claims: map[string]any{"iss": "https://evil.example"}}), "not issued by " + p.Issuer()},
		"wrong audience": {issue(oidctest.TokenSpec{Audience: []string{"https://x.example/mcp"}}), "request one with resource=" + audience},
		"expired":        {issue(oidctest.TokenSpec{Lifetime: -2 * time.Minute}), "has expired"},
		"not yet valid":  {issue(oidctest.TokenSpec{Claims: map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}}), "not valid yet"},
		"unsigned":       {issue(oidctest.TokenSpec{Forgery: oidctest.Unsigned}), "not signed with"},
		"HS256":          {issue(oidctest.TokenSpec{Forgery: oidctest.SignedHMAC}), "not signed with"},
		"signature":      {issue(oidctest.TokenSpec{Forgery: oidctest.SignedByOther}), "signature of the access token is not valid"},
		"unknown key":    {issue(oidctest.TokenSpec{Forgery: oidctest.UnknownKeyID}), "has not published"},
	} {
		t.Run(name, func(t *testing.T) {
			want := "Bearer " + where
			tr := statelessRequest("1", "echo", "")
			if tt.token != "" {
				tr = tr.by(tt.token)
				want = `Bearer error="invalid_token", error_description="`
			}
			res, body := h.do(tr)
			got := res.Header.Get("WWW-Authenticate")
			if res.StatusCode != 401 || !strings.HasPrefix(got, want) ||
				!strings.HasSuffix(got, where) || !strings.Contains(got, tt.reason) ||
				!strings.Contains(body, tt.reason) {
				t.Errorf("%s\n%s\n%s", res.Status, got, body)
			}
			h.want(statelessRequest("1", "echo", "").by(valid), 200, "*")
			h.want(statelessRequest("1", "echo", "").by("static"), 200, "*")
			if len(tt.token) > 20 && strings.Contains(log.String(), tt.token) {
				t.Error("the token is in the log")
			}
		})
	}
	scopes = []string{"read"}
	res := h.wantError(statelessRequest("1", "echo", "").by(issue(oidctest.TokenSpec{})), 403,
		"null", -32600)
	if got := res.Header.Get("WWW-Authenticate"); !strings.HasPrefix(got,
		`Bearer error="insufficient_scope", `) || !strings.HasSuffix(got, where) {
		t.Errorf("%s", got)
	}
}

// The path of a profile is a resource of its own: its challenge and metadata name it, and a token
// for it is valid there only. Whether the profile exists is said to authenticated clients only.
func TestOAuthProfilePath(t *testing.T) {
	h, p, _ := newOAuthHarness(t)
	rules := AccessRules{OAuth: h.server.access.policy.Load().oauth, Profiles: []string{"reader"}}
	h.server.UpdateAccess(rules)
	for _, name := range []string{"reader", "unknown"} {
		path := "/.well-known/oauth-protected-resource/mcp/" + name
		res := h.wantError(testRequest{path: "/mcp/" + name, body: echoRequest}, 401, "null",
			-32600)
		if got := res.Header.Get("WWW-Authenticate"); !strings.HasSuffix(got,
			`resource_metadata="https://gateway.example`+path+`"`) {
			t.Errorf("%s: %s", name, got)
		}
		h.want(testRequest{method: "GET", path: path}, 200, `{"resource":"`+audience+"/"+name+
			`","authorization_servers":["`+p.Issuer()+`"],"bearer_methods_supported":["header"]}`)
	}
	at := func(path, token string) testRequest {
		tr := statelessRequest("1", "echo", "").by(token)
		tr.path = path
		return tr
	}
	reader := p.IssueToken(oidctest.TokenSpec{Audience: []string{audience + "/reader"}})
	all := p.IssueToken(oidctest.TokenSpec{})
	h.want(at("/mcp/reader", reader), 200, "*")
	h.want(at("/mcp/reader", all), 200, "*")
	h.want(at("/mcp/unknown", all), 404, "*")
	h.want(at("/mcp", reader), 401, "*")
	h.want(testRequest{method: "GET", path: "/sse"}.by(reader), 401, "*")
	h.want(testRequest{method: "GET", path: "/sse/reader"}.by(reader), 401, "*")
}

// While the authorization server is not available, its clients get 503 without the failure, which
// may name internal addresses. Holders of tokens of the configuration are served.
func TestOAuthUnavailable(t *testing.T) {
	h, p, _ := newOAuthHarness(t)
	token := p.IssueToken(oidctest.TokenSpec{})
	for _, e := range []oidctest.Endpoint{oidctest.OAuthMetadata, oidctest.OpenIDMetadata} {
		p.SetFault(e, oidctest.Fault{Status: 500})
	}
	h.server.UpdateAccess(AccessRules{Tokens: []StaticToken{{Text: "static", Name: "colleague"}},
		OAuth: resourceserver.New(resourceserver.Options{
			Issuer: p.Issuer(), Audience: audience})})
	res, body := h.do(statelessRequest("1", "echo", "").by(token))
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" ||
		res.Header.Get("WWW-Authenticate") != "" || !strings.Contains(body, p.Issuer()) ||
		strings.Contains(body, "status 500") || strings.Contains(body, "well-known") {
		t.Errorf("%s %v %s", res.Status, res.Header, body)
	}
	h.want(statelessRequest("1", "echo", "").by("static"), 200, "*")
}

// A session belongs to the subject of the token that opened it. It continues with other tokens of
// this subject, and with no token of another one.
func TestOAuthSessions(t *testing.T) {
	h, p, log := newOAuthHarness(t)
	ann := p.IssueToken(oidctest.TokenSpec{User: "ann"})
	key, session := h.initialize("2025-11-25", bearerHeader(ann))
	if p := session.Principal; p.Name() != "oauth:ann" || p.IsOnly() {
		t.Errorf("%q", p.Name())
	}
	h.want(post(key, echoRequest).by(ann), 200, resultJSON("1", "{}"))
	h.want(post(key, echoRequest).by(p.IssueToken(oidctest.TokenSpec{User: "ann",
		Scopes: []string{"more"}})), 200, resultJSON("1", "{}"))
	for _, other := range []string{p.IssueToken(oidctest.TokenSpec{User: "bob"}), "static",
		p.IssueToken(oidctest.TokenSpec{User: "token:colleague"})} {
		if res, body := h.do(post(key, echoRequest).by(other)); res.StatusCode != 404 {
			t.Errorf("%s %s", res.Status, body)
		}
	}
	h.wantError(post(key, echoRequest), 401, "null", -32600)
	expired := p.IssueToken(oidctest.TokenSpec{User: "ann", Lifetime: -2 * time.Minute})
	h.wantError(post(key, echoRequest).by(expired), 401, "null", -32600)
	if !strings.Contains(log.String(), "session="+key[:32]+" principal=oauth:ann") {
		t.Errorf("the log has no principal:\n%s", log.String())
	}
	for _, secret := range p.Secrets() {
		if strings.Contains(log.String(), secret) {
			t.Error("a token is in the log")
		}
	}
}

// soon returns a token of ann that is refused within two to three seconds, when the difference
// that is tolerated between the clocks is over.
func soon(p *oidctest.Provider) string {
	return p.IssueToken(oidctest.TokenSpec{User: "ann", Lifetime: -57 * time.Second})
}

// When the access token of a client expires, its open streams end: the standalone stream, a
// subscription, and a session over HTTP+SSE. A session over streamable HTTP and a call in flight
// continue; the session goes on with the next token.
func TestOAuthStreamsEndWithToken(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	h, p, _ := newOAuthHarness(t)
	token := soon(p)
	key, session := h.initialize("2025-11-25", bearerHeader(token))
	stream := h.openStream(testRequest{method: "GET", session: key}.by(token))
	sse := h.openStream(testRequest{method: "GET", path: "/sse"}.by(token))
	listening := make(chan *eventReader)
	go func() {
		listening <- h.openStream(statelessRequest("5", methodListen, "").by(token))
	}()
	(<-h.heldRequests).Notify(progressNotification(1))
	listen := <-listening
	called := make(chan string)
	go func() {
		_, body := h.do(post(key, requestJSON("9", "hold", "{}")).by(token))
		called <- body
	}()
	call := <-h.heldRequests

	var all sync.WaitGroup
	for name, s := range map[string]*eventReader{"standalone": stream, "HTTP+SSE": sse,
		"subscription": listen} {
		all.Go(func() {
			last := event{}
			for e, err := s.next(); err == nil; e, err = s.next() {
				last = e
			}
			if name == "subscription" && !strings.Contains(last.data, "access token has expired") {
				t.Errorf("%s: %+v", name, last)
			}
		})
	}
	all.Wait()
	h.wantError(post(key, echoRequest).by(token), 401, "null", -32600)
	select {
	case reason := <-session.closed:
		t.Errorf("the session has ended: %v", reason)
	default:
	}
	call.Reply([]byte(`{"late":true}`))
	if body := <-called; !strings.Contains(body, `{"late":true}`) {
		t.Errorf("the call has ended with %s", body)
	}
	next := p.IssueToken(oidctest.TokenSpec{User: "ann"})
	h.want(post(key, echoRequest).by(next), 200, resultJSON("1", "{}"))
	stream = h.openStream(testRequest{method: "GET", session: key}.by(next))
	if err := session.Write(progressNotification(7), ""); err != nil {
		t.Error(err)
	}
	for e, err := stream.next(); !strings.Contains(e.data, "7"); e, err = stream.next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	stream.disconnect()
}

// A client that renews its token in time keeps its stream.
func TestOAuthRenewedTokenKeepsStream(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	h, p, _ := newOAuthHarness(t)
	token := soon(p)
	key, _ := h.initialize("2025-11-25", bearerHeader(token))
	stream := h.openStream(testRequest{method: "GET", session: key}.by(token))
	h.want(post(key, echoRequest).by(p.IssueToken(oidctest.TokenSpec{User: "ann"})), 200, "*")
	s := h.server.sessions.all()[0]
	for refused := false; !refused; {
		res, _ := h.do(statelessRequest("1", "echo", "").by(token))
		refused = res.StatusCode == 401
		<-time.After(50 * time.Millisecond)
	}
	s.mu.Lock()
	open := s.streams.standalone.writer != nil
	s.mu.Unlock()
	if !open {
		t.Error("the stream has ended although the token was renewed")
	}
	stream.disconnect()
}

// A token in the URL is refused on every path, and is not in the log.
func TestTokenInQuery(t *testing.T) {
	h, p, log := newOAuthHarness(t)
	token := p.IssueToken(oidctest.TokenSpec{})
	for _, query := range []string{"?access_token=", "?x=1&access_token=", "?access%5Ftoken="} {
		for _, tr := range []testRequest{
			{path: "/mcp", body: initializeRequest("2025-11-25")}, {method: "GET", path: "/mcp"},
			{method: "GET", path: "/sse"}, {path: "/message", body: "{}"},
			{method: "GET", path: "/.well-known/oauth-protected-resource"},
		} {
			for _, by := range []string{"", "static", token} {
				tr := tr
				tr.path += query + token
				if by != "" {
					tr = tr.by(by)
				}
				if res, body := h.do(tr); res.StatusCode != 400 ||
					!strings.Contains(body, "header Authorization") || strings.Contains(body, token) {
					t.Errorf("%s %s: %s %s", tr.method, tr.path, res.Status, body)
				}
			}
		}
	}
	for _, by := range []string{"static", token} {
		h.want(statelessRequest("1", "echo", "").by(by), 200, "*")
	}
	if !strings.Contains(log.String(), "access_token") || strings.Contains(log.String(), token) {
		t.Errorf("the log:\n%s", log.String())
	}
}

// A token of 1 MiB is refused with a clear error, and other clients are not affected.
func TestLongTokenOverHTTP(t *testing.T) {
	h, p, log := newOAuthHarness(t)
	for _, size := range []int{17 << 10, 1 << 20} {
		token := strings.Repeat("x", size)
		res, body := h.do(statelessRequest("1", "echo", "").by(token))
		if size == 1<<20 {
			if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge ||
				!strings.Contains(body, "Request Header Fields Too Large") {
				t.Errorf("%s %s", res.Status, body)
			}
		} else if res.StatusCode != 401 || !strings.Contains(body, "longer than 16384 bytes") {
			t.Errorf("%s %s", res.Status, body)
		}
		if strings.Contains(log.String(), token) {
			t.Error("the token is in the log")
		}
	}
	h.want(statelessRequest("1", "echo", "").by(p.IssueToken(oidctest.TokenSpec{})), 200, "*")
}

// A reload applies in place. If the authorization server, the audience or the scopes change, the
// sessions and requests of access tokens end, and those of other tokens continue.
func TestUpdateAccessOAuth(t *testing.T) {
	h, p, _ := newOAuthHarness(t)
	ann := p.IssueToken(oidctest.TokenSpec{User: "ann"})
	rules := AccessRules{Tokens: []StaticToken{{Text: "static", Name: "colleague"}},
		OAuth: h.server.access.policy.Load().oauth}
	first, firstSession := h.initialize("2025-11-25", bearerHeader(ann))
	static, _ := h.initialize("2025-11-25", bearerHeader("static"))
	h.server.UpdateAccess(rules)
	h.want(post(first, echoRequest).by(ann), 200, resultJSON("1", "{}"))

	old := rules.OAuth
	rules.OAuth = resourceserver.New(resourceserver.Options{Issuer: p.Issuer(), Audience: audience,
		Scopes: []string{"read"}})
	h.server.UpdateAccess(rules)
	<-firstSession.closed
	h.wantError(post(first, echoRequest).by(ann), 403, "null", -32600)
	h.want(post(static, echoRequest).by("static"), 200, resultJSON("1", "{}"))
	for { // Run of the old Verifier has ended: it sends no more requests
		_, err := old.Verify(context.Background(), p.IssueToken(oidctest.TokenSpec{
			Forgery: oidctest.UnknownKeyID}), "")
		if strings.Contains(err.Error(), "is not available") {
			break
		}
		<-time.After(10 * time.Millisecond)
	}

	reader := p.IssueToken(oidctest.TokenSpec{User: "ann", Scopes: []string{"read"}})
	_, second := h.initialize("2025-11-25", bearerHeader(reader))
	rules.OAuth = nil
	h.server.UpdateAccess(rules)
	<-second.closed
	res := h.wantError(statelessRequest("1", "echo", "").by(reader), 401, "null", -32600)
	if res.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%v", res.Header)
	}
	h.want(post(static, echoRequest).by("static"), 200, resultJSON("1", "{}"))
}

// Without tokens in the configuration, an authorization server alone is authentication: anonymous
// requests are refused, and sessions without a token end when it is added.
func TestUpdateAccessOAuthOnly(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Audience: []string{audience}})
	h := newHarness(t, nil)
	_, anonymous := h.initialize("2025-11-25", nil)
	h.server.UpdateAccess(AccessRules{OAuth: resourceserver.New(resourceserver.Options{
		Issuer: p.Issuer(), Audience: audience})})
	<-anonymous.closed
	h.wantError(testRequest{body: initializeRequest("2025-11-25")}, 401, "null", -32600)
	h.wantError(testRequest{method: "GET", path: "/readyz?backends=1"}, 401, "null", -32600)
	h.want(testRequest{method: "GET", path: "/healthz"}, 200, "*")
	h.want(statelessRequest("1", "echo", "").by(p.IssueToken(oidctest.TokenSpec{})), 200, "*")
}

// The header WWW-Authenticate of a response is a line of visible ASCII whatever the token is.
func FuzzAuthorization(f *testing.F) {
	p := oidctest.New(f, oidctest.Options{Audience: []string{audience}})
	srv := New(Options{AccessRules: AccessRules{
		Tokens: []StaticToken{{Text: "static"}},
		OAuth: resourceserver.New(resourceserver.Options{Issuer: p.Issuer(), Audience: audience,
			Scopes: []string{"read"}}),
	}})
	f.Add("Bearer static")
	f.Add("bearer   static ")
	f.Add("Basic c3RhdGlj")
	f.Add("Bearer " + p.IssueToken(oidctest.TokenSpec{}))
	f.Add("Bearer " + p.IssueToken(oidctest.TokenSpec{Scopes: []string{"read"}}))
	f.Add("Bearer " + p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.Unsigned}))
	f.Fuzz(func(t *testing.T, header string) {
		r, err := http.NewRequest("POST", "http://localhost/mcp", bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Authorization"] = []string{header}
		from, herr := srv.access.authenticate(r, "")
		if (herr == nil) != (from.Principal != nil) {
			t.Fatalf("%v, %+v", from, herr)
		}
		if herr == nil {
			return
		}
		challenge := herr.header["WWW-Authenticate"]
		for _, b := range []byte(challenge) {
			if b < ' ' || b > '~' {
				t.Fatalf("%q", challenge)
			}
		}
		if (challenge == "") != (herr.status == 503) {
			t.Fatalf("%d %q", herr.status, challenge)
		}
	})
}

// The profiles of an access token come from its scopes. A session cannot be used with a token that
// has other profiles, and a token without a profile is refused.
func TestOAuthProfiles(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Audience: []string{audience}})
	h := newHarness(t, func(o *Options) {
		o.OAuth = resourceserver.New(resourceserver.Options{Issuer: p.Issuer(), Audience: audience,
			Profiles: []resourceserver.ProfileSelector{{Scope: "read", Profile: "reader"},
				{Scope: "all", Profile: "admin"}}})
		o.Profiles = []string{"admin", "reader"}
	})
	token := func(scopes ...string) string {
		return p.IssueToken(oidctest.TokenSpec{User: "ann", Scopes: scopes})
	}
	id, session := h.initialize("2025-11-25", bearerHeader(token("all")))
	if got := session.Principal.ProfileKey(); got != "admin" {
		t.Errorf("profiles %q", got)
	}
	h.want(post(id, echoRequest).by(token("all")), 200, resultJSON("1", "{}"))
	h.wantError(post(id, echoRequest).by(token("read")), 404, "1", -32001)
	h.wantError(post(id, echoRequest).by(token("read", "all")), 404, "1", -32001)
	res := h.wantError(post(id, echoRequest).by(token("other")), 403, "null", -32600)
	if got := res.Header.Get("WWW-Authenticate"); !strings.Contains(got, `scope="read"`) {
		t.Errorf("the challenge is %s", got)
	}
	h.want(post(id, echoRequest).by(token("all")), 200, resultJSON("1", "{}"))
}

// The error of a request that is not authenticated says what to do: log in, or send a token, or
// check the token.
func TestUnauthorizedReportsWhatToDo(t *testing.T) {
	with, p, _ := newOAuthHarness(t)
	without := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("static") })
	const header = "send the header Authorization: Bearer TOKEN"
	const none = "the header Authorization has no bearer token; "
	login := "log in at " + p.Issuer() + ", or "
	for _, c := range []struct {
		h                   *harness
		authorization, want string
	}{
		{with, "", login + header},
		{with, "Basic c3RhdGljOg==", none + login + header},
		{without, "", header},
		{without, "Bearer", none + header},
		{without, "Basic c3RhdGljOg==", none + header},
		{without, "Bearer wrong", "the token in the header Authorization is not in auth.tokens; " +
			"check it, or ask the operator of the gateway for a new one"},
	} {
		request := testRequest{body: echoRequest}
		if c.authorization != "" {
			request = request.withHeader("Authorization", c.authorization)
		}
		if _, body := c.h.do(request); !strings.Contains(body, `"Unauthorized: `+c.want+`"`) {
			t.Errorf("Authorization: %s: got %s, want %s", c.authorization, body, c.want)
		}
	}
}
