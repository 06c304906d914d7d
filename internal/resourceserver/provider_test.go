package resourceserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/mcptest/oidctest"
)

// wantUnavailable verifies a token that cannot be verified now. The error must say so, and nothing
// about the failure.
func wantUnavailable(t *testing.T, v *Verifier, token string) {
	t.Helper()
	_, err := v.Verify(t.Context(), token, "")
	unavailable, ok := errors.AsType[*UnavailableError](err)
	if !ok || unavailable.RetryAfter <= 0 || err.Error() != "the gateway cannot verify access "+
		"tokens now, because the authorization server "+v.opts.Issuer+" is not available; try "+
		"again later, or ask the operator of the gateway, whose log has the reason" {
		t.Fatalf("got %v", err)
	}
}

// An authorization server that does not answer as it should makes tokens unverifiable, with a
// reason, and not invalid. The next attempt succeeds when the server is available again.
func TestUnavailableServer(t *testing.T) {
	long := strings.Repeat(" ", 10<<20)
	for name, tt := range map[string]struct {
		endpoint oidctest.Endpoint
		fault    oidctest.Fault
		want     string
	}{
		"error": {oidctest.OAuthMetadata, oidctest.Fault{Status: 500}, "status 500"},
		"redirect": {oidctest.KeysEndpoint, oidctest.Fault{Status: 302,
			Header: http.Header{"Location": {"https://evil.example/keys"}}},
			"redirects are not followed"},
		"redirected metadata": {oidctest.OAuthMetadata, oidctest.Fault{Status: 307,
			Header: http.Header{"Location": {"/other"}}}, ""},
		"10 MB": {oidctest.KeysEndpoint, oidctest.Fault{Status: 200, Body: long},
			"longer than 1048576 bytes"},
		"endless": {oidctest.KeysEndpoint, oidctest.Fault{Status: 200,
			Body: `{"keys":[` + strings.Repeat("[", 1000), Endless: true}, "longer than 1048576 bytes"},
		"endless metadata": {oidctest.OAuthMetadata, oidctest.Fault{Status: 200, Body: strings.Repeat("[", 1000),
			Endless: true}, "longer than 1048576 bytes"},
		"no keys":   {oidctest.KeysEndpoint, oidctest.Fault{Status: 200, Body: `{"keys":[]}`}, "no key"},
		"no JSON":   {oidctest.KeysEndpoint, oidctest.Fault{Status: 200, Body: "<html>"}, "not a JWK set"},
		"not found": {oidctest.KeysEndpoint, oidctest.Fault{Status: 404}, "status 404"},
		"other issuer": {oidctest.OAuthMetadata, oidctest.Fault{Status: 200,
			Body: `{"issuer":"https://evil.example"}`}, ""},
		"web page": {oidctest.OAuthMetadata, oidctest.Fault{Status: 200, Body: "<html>"}, ""},
		"missing":  {oidctest.OAuthMetadata, oidctest.Fault{Status: 404}, ""},
		"symmetric keys": {oidctest.KeysEndpoint, oidctest.Fault{Status: 200,
			Body: `{"keys":[{"kty":"oct","k":"AAAA","alg":"HS256"}]}`}, "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, logger := mcptest.NewLog()
			p, v := newPair(t, oidctest.Options{Path: "/tenant"},
				func(o *Options) { o.Log = logger })
			token := p.IssueToken(oidctest.TokenSpec{})
			p.SetFault(tt.endpoint, tt.fault)
			if tt.want == "" { // the other metadata of the issuer are used
				wantValid(t, v, token)
				return
			}
			for range 5 {
				wantUnavailable(t, v, token)
			}
			if n := p.Counts()[tt.endpoint]; n != 1 {
				t.Errorf("%d requests, although the first one has just failed", n)
			}
			if lines := log.Lines("authorization server not available", tt.want); len(lines) != 1 {
				t.Errorf("the log has %q", lines)
			}
			p.ClearFaults()
			await(t, func() bool {
				_, err := v.Verify(t.Context(), token, "")
				return err == nil
			})
		})
	}
}

// An authorization server that never answers costs only those that wait for it, at most
// fetchTimeout.
func TestServerNeverAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	log, logger := mcptest.NewLog()
	p, v := newPair(t, oidctest.Options{}, func(o *Options) { o.Log = logger })
	token := p.IssueToken(oidctest.TokenSpec{})
	p.SetFault(oidctest.KeysEndpoint, oidctest.Fault{Hang: true})
	began := time.Now()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { wantUnavailable(t, v, token) })
	}
	all.Wait()
	if len(log.Lines("no complete response within 10s")) != 1 {
		t.Error("the failure is not in the log")
	}
	if took := time.Since(began); took < fetchTimeout || took > fetchTimeout+5*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := p.Counts()[oidctest.KeysEndpoint]; n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Run ends when ctx is done, also while the authorization server does not answer.
func TestRunEndsDuringARequest(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Audience: []string{gatewayURL}})
	p.SetFault(oidctest.KeysEndpoint, oidctest.Fault{Hang: true})
	v := newVerifier(t, Options{Issuer: p.Issuer(), Audience: gatewayURL})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		v.Run(ctx)
		close(ended)
	}()
	for p.Counts()[oidctest.KeysEndpoint] == 0 {
		runtime.Gosched()
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(fetchTimeout / 2):
		t.Error("Run waits for the request")
	}
}

// A key is retired when the metadata name no keys any longer.
func TestKeysAreRetiredWithTheirURL(t *testing.T) {
	var noKeys atomic.Bool
	p, v := newPair(t, oidctest.Options{EditMetadata: func(m map[string]any) {
		if noKeys.Load() {
			delete(m, "jwks_uri")
		}
	}}, nil)
	token := p.IssueToken(oidctest.TokenSpec{})
	wantValid(t, v, token)
	noKeys.Store(true)
	if _, err := v.provider.read(v.provider.current); err != nil {
		t.Fatal(err)
	}
	if g, err := v.valid.get(sha256.Sum256([]byte(token)), time.Now()); g != nil || err != nil {
		t.Errorf("the cached token is still valid, %v", err)
	}
}

// While the authorization server is not available, tokens with known keys are valid.
func TestKnownKeysSuffice(t *testing.T) {
	log, logger := mcptest.NewLog()
	p, v := newPair(t, oidctest.Options{}, func(o *Options) { o.Log = logger })
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
	for _, e := range []oidctest.Endpoint{oidctest.OAuthMetadata, oidctest.OpenIDMetadata,
		oidctest.KeysEndpoint} {
		p.SetFault(e, oidctest.Fault{Status: 503})
	}
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{User: "new"}))
	forged := p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.UnknownKeyID})
	wantUnavailable(t, v, forged)
	wantUnavailable(t, v, forged)
	if len(log.Lines("status 503")) != 1 {
		t.Error("the failure is not in the log")
	}
	if n := p.Counts()[oidctest.OAuthMetadata]; n != 2 {
		t.Errorf("%d requests", n)
	}
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{User: "newer"}))
}

// A server that cannot be reached at all. Its address is in the log, and not in the error.
func TestServerNotReachable(t *testing.T) {
	p, _ := newPair(t, oidctest.Options{}, nil)
	token := p.IssueToken(oidctest.TokenSpec{
		Claims: map[string]any{"iss": "http://127.0.0.1:1"}})
	log, logger := mcptest.NewLog()
	v := newVerifier(t, Options{Issuer: "http://127.0.0.1:1", Audience: gatewayURL, Log: logger})
	wantUnavailable(t, v, token)
	if len(log.Lines("connection refused")) != 1 {
		t.Error("the failure is not in the log")
	}
}

// The metadata of an issuer must not name endpoints that are not encrypted, unless the issuer
// itself is not.
func TestEndpointsMustBeEncrypted(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"https://i.example/keys": true, "https://keys.example:8443/": true,
		"http://i.example/keys": false, "file:///etc/passwd": false, "/keys": false,
		"https://u:p@i.example/": false, "https:///keys": false, "ftp://i.example/": false,
	} {
		if err := checkEndpoint("https://i.example", endpoint); (err == nil) != ok {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if err := checkEndpoint("http://127.0.0.1:1", "http://127.0.0.1:1/keys"); err != nil {
		t.Error(err)
	}
}

// The order of the specification: RFC 8414, then OpenID Connect with the path inserted and
// appended.
func TestMetadataURLs(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://i.example": "https://i.example/.well-known/oauth-authorization-server " +
			"https://i.example/.well-known/openid-configuration",
		"https://i.example/": "https://i.example/.well-known/oauth-authorization-server " +
			"https://i.example/.well-known/openid-configuration",
		"https://i.example:8/t/a": "https://i.example:8/.well-known/oauth-authorization-server/t/a " +
			"https://i.example:8/.well-known/openid-configuration/t/a " +
			"https://i.example:8/t/a/.well-known/openid-configuration",
	} {
		if got := strings.Join(metadataURLs(issuer), " "); got != want {
			t.Errorf("%s: %s", issuer, got)
		}
	}
}

// At most maxKeys keys of the authorization server are used; others are ignored.
func TestKeysLimit(t *testing.T) {
	const key = `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",` +
		`"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	keys, err := parseKeys([]byte(`{"keys":[{"kty":"EC"},{"use":"enc",` + key[1:] +
		strings.Repeat(","+key, 200) + `]}`))
	if err != nil || len(keys) != maxKeys {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// A server that ends each connection causes the same failure each time, which is logged once in ten
// minutes. The text has the URL, and not the local port.
func TestFailureHasTheSameTextOnEachConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset
		conn.Close()
	}))
	defer server.Close()
	log, logger := mcptest.NewLog()
	p := newProvider(t.Context(), &Options{Issuer: server.URL, Log: logger})
	var texts []string
	for range 2 {
		_, err := get(t.Context(), p.client, server.URL+"/keys")
		texts = append(texts, err.Error())
		p.logFailure(err)
		p.mu.Lock()
		p.logged = p.logged.Add(-newFailureLogInterval)
		p.mu.Unlock()
	}
	if texts[0] != texts[1] || !strings.HasPrefix(texts[0], server.URL+"/keys: read tcp ") {
		t.Errorf("%q", texts)
	}
	if lines := log.Lines("reset by peer"); len(lines) != 1 {
		t.Errorf("%q", lines)
	}
}
