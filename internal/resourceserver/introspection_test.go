package resourceserver

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/mcptest/oidctest"
)

// newOpaquePair starts a provider that issues opaque tokens, and a Verifier that introspects them.
func newOpaquePair(t *testing.T) (*oidctest.Provider, *Verifier, *mcptest.Log) {
	log, logger := mcptest.NewLog()
	p := oidctest.New(t, oidctest.Options{Opaque: true, Audience: []string{gatewayURL}})
	o := Options{Issuer: p.Issuer(), Audience: gatewayURL, Log: logger}
	o.ClientID, o.ClientSecret = p.IntrospectionClient()
	return p, newVerifier(t, o), log
}

// An opaque token is introspected once, also if many requests have it at the same time, and again
// after activeTTL or its expiry.
func TestIntrospection(t *testing.T) {
	p, v, _ := newOpaquePair(t)
	token := p.IssueToken(oidctest.TokenSpec{User: "ann", Scopes: []string{"read"},
		Lifetime: time.Hour})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			got := wantValid(t, v, token)
			if p := got.Principal; p.Name() != "oauth:ann" || len(p.Scopes()) != 1 ||
				time.Until(got.Expires) < 59*time.Minute {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
	wantValid(t, v, token) // from the cache
	if n := p.Counts()[oidctest.IntrospectionEndpoint]; n != 1 {
		t.Errorf("%d introspection requests", n)
	}
	request := p.Requests(oidctest.IntrospectionEndpoint)[0]
	if request.Auth != oidctest.AuthBasic || request.Form.Get("token") != token ||
		request.Form.Get("token_type_hint") != "access_token" {
		t.Errorf("%+v", request)
	}
	for _, one := range v.valid.byKey {
		if left := time.Until(one.until); left > activeTTL {
			t.Errorf("cached for %v", left)
		}
	}
	short := p.IssueToken(oidctest.TokenSpec{Lifetime: -30 * time.Second})
	if _, err := v.Verify(t.Context(), short, ""); err == nil {
		t.Error("an expired token is active")
	}
}

// A token that is not active is refused, and not introspected again for inactiveTTL.
func TestInactiveTokens(t *testing.T) {
	p, v, _ := newOpaquePair(t)
	revoked := p.IssueToken(oidctest.TokenSpec{})
	p.ExpireAccessTokens()
	for range 3 {
		wantInvalid(t, v, revoked, "not active")
		wantInvalid(t, v, "random-text", "not active")
	}
	if n := p.Counts()[oidctest.IntrospectionEndpoint]; n != 2 {
		t.Errorf("%d introspection requests", n)
	}
	for _, one := range v.introspect.inactive.byKey {
		if left := time.Until(one.until); left > inactiveTTL {
			t.Errorf("cached for %v", left)
		}
	}
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
	if v.introspect.inactive.max != maxInactiveTokens || v.introspect.inactive.len() != 2 {
		t.Error("the number of inactive tokens is not bounded")
	}
}

// An opaque token for another audience is refused. A JWT is verified without introspection, and a
// JWT that is not valid is not introspected.
func TestIntrospectionChecksClaims(t *testing.T) {
	p, v, _ := newOpaquePair(t)
	wantInvalid(t, v, p.IssueToken(oidctest.TokenSpec{Audience: []string{"https://x/mcp"}}),
		"another audience")
	jwts := oidctest.New(t, oidctest.Options{Audience: []string{gatewayURL}})
	wantInvalid(t, v, jwts.IssueToken(oidctest.TokenSpec{}), "not issued by")
	for _, text := range []string{`{"active":true}`, `{"active":true,"sub":"a"}`,
		`{"active":true,"sub":"a","aud":"x"}`, `{"active":true,"aud":"` + gatewayURL + `"}`,
		`{"active":true,"sub":"a","aud":"` + gatewayURL + `","iss":"https://evil.example"}`,
		`{"active":true,"sub":"a","aud":"` + gatewayURL + `","exp":1}`,
		`{"active":false,"sub":"a","aud":"` + gatewayURL + `"}`, `{}`,
		`{"active":false,"Active":true,"sub":"a","aud":"` + gatewayURL + `"}`,
		`{"active":"true","sub":"a","aud":"` + gatewayURL + `"}`} {
		if got, err := v.introspect.result([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, got)
		} else if _, ok := errors.AsType[*InvalidTokenError](err); !ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Without exp a token expires after some time, so that streams do not stay open for ever.
	got, err := v.introspect.result([]byte(`{"active":true,"sub":"a","aud":"` + gatewayURL + `"}`))
	if err != nil || time.Until(got.Expires) > unlimitedExpiry+clockSkew ||
		time.Until(got.until) > activeTTL {
		t.Errorf("%+v, %v", got, err)
	}
}

// An introspection endpoint that does not answer as it should makes tokens unverifiable, not
// invalid.
func TestIntrospectionUnavailable(t *testing.T) {
	for name, tt := range map[string]struct {
		fault oidctest.Fault
		want  string
	}{
		"error":             {oidctest.Fault{Status: 500}, "status 500"},
		"wrong credentials": {oidctest.Fault{Status: 401}, "check auth.oauth.introspection"},
		"redirect": {oidctest.Fault{Status: 302, Header: http.Header{"Location": {"/x"}}},
			"redirects are not followed"},
		"endless": {oidctest.Fault{Status: 200, Body: strings.Repeat("{", 1000),
			Endless: true}, "longer than"},
		"no JSON": {oidctest.Fault{Status: 200, Body: "<html>"}, "no JSON object"},
		"null":    {oidctest.Fault{Status: 200, Body: "null"}, "no JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			p, v, log := newOpaquePair(t)
			token := p.IssueToken(oidctest.TokenSpec{})
			p.SetFault(oidctest.IntrospectionEndpoint, tt.fault)
			wantUnavailable(t, v, token)
			p.ClearFaults()
			wantValid(t, v, token)
			for _, secret := range p.Secrets() {
				if lines := log.Lines(secret); len(lines) > 0 {
					t.Errorf("a secret is in the log: %q", lines)
				}
			}
			if len(log.Lines("authorization server not available", tt.want)) != 1 {
				t.Error("the failure is not in the log")
			}
		})
	}
}

// The number of introspection requests at the same time is bounded.
func TestIntrospectionsLimit(t *testing.T) {
	p, v, _ := newOpaquePair(t)
	if _, err := v.provider.load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	p.SetFault(oidctest.IntrospectionEndpoint, oidctest.Fault{Hang: true})
	var all sync.WaitGroup
	for n := range 2 * maxIntrospections {
		all.Go(func() {
			_, _ = v.Verify(t.Context(), strings.Repeat("x", n+1), "")
		})
	}
	await(t, func() bool { return p.Counts()[oidctest.IntrospectionEndpoint] == maxIntrospections })
	v.introspect.mu.Lock()
	n := len(v.introspect.inFlight)
	v.introspect.mu.Unlock()
	if n < maxIntrospections {
		t.Errorf("%d introspections wait", n)
	}
	p.ClearFaults()
	all.Wait()
	if n := p.Counts()[oidctest.IntrospectionEndpoint]; n < maxIntrospections {
		t.Errorf("%d requests", n)
	}
	if len(v.introspect.inFlight) != 0 || len(v.introspect.slots) != 0 {
		t.Error("introspections are left")
	}
}
