package oidctest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"mcpgateway/internal/mcptest/oidctest"
)

func asError[E error](err error, target *E) bool { return errors.As(err, target) }

// waitUntil waits for a condition that another goroutine makes true.
func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("timeout")
		}
		<-time.After(time.Millisecond)
	}
}

// verify verifies a JWT as a resource server does that has read the key set of the provider now.
func verify(ctx context.Context, p *oidctest.Provider, token, audience string) (
	*oidc.IDToken, error) {
	discovered, err := oidc.NewProvider(ctx, p.Issuer())
	if err != nil {
		return nil, err
	}
	return discovered.Verifier(&oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{
		oidctest.RS256, oidctest.ES256, oidctest.EdDSA,
	}}).Verify(ctx, token)
}

// claims returns the claims of a valid JWT.
func claims(t *testing.T, p *oidctest.Provider, token, audience string) map[string]any {
	t.Helper()
	verified, err := verify(t.Context(), p, token, audience)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := verified.Claims(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// header returns the header of a JWT.
func header(t *testing.T, token string) (h struct{ Alg, Kid, Typ string }) {
	t.Helper()
	first, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(first)
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// introspect requests the introspection endpoint as the resource server.
func introspect(t *testing.T, p *oidctest.Provider, token string) map[string]any {
	t.Helper()
	id, secret := p.IntrospectionClient()
	status, doc := post(t, p.URL(oidctest.IntrospectionEndpoint), id, secret,
		url.Values{"token": {token}})
	if status != http.StatusOK {
		t.Fatalf("introspection: %d", status)
	}
	return doc
}

func isActive(t *testing.T, p *oidctest.Provider, token string) bool {
	t.Helper()
	return introspect(t, p, token)["active"] == true
}

func TestKeyRotation(t *testing.T) {
	for _, alg := range []string{oidctest.RS256, oidctest.ES256, oidctest.EdDSA} {
		t.Run(alg, func(t *testing.T) {
			p := oidctest.New(t, oidctest.Options{Alg: alg})
			l := newLogin(t, p, oidctest.AuthNone)
			first := l.token("ann").AccessToken
			if got := header(t, first).Alg; got != alg {
				t.Errorf("alg %s", got)
			}
			claims(t, p, first, resource)
			if !isActive(t, p, first) {
				t.Error("introspection refuses the JWT")
			}
			for _, next := range []string{oidctest.EdDSA, oidctest.ES256} {
				if err := p.RotateKeys(next); err != nil {
					t.Fatal(err)
				}
				second := l.token("ann").AccessToken
				if h := header(t, second); h.Alg != next || h.Kid == header(t, first).Kid {
					t.Errorf("header %+v", h)
				}
				claims(t, p, second, resource)
				claims(t, p, first, resource)
			}
			p.RetireKeys()
			if _, err := verify(t.Context(), p, first, resource); err == nil {
				t.Error("the token of a retired key is accepted")
			}
			claims(t, p, l.token("ann").AccessToken, resource)
		})
	}
	p := oidctest.New(t, oidctest.Options{})
	if err := p.RotateKeys("HS256"); err == nil {
		t.Error("HS256 has no public key")
	}
}

func TestOpaqueTokens(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{
		Opaque: true, AccessTokenLifetime: time.Minute,
		Claims: func(user string) map[string]any { return map[string]any{"groups": user + "s"} },
	})
	l := newLogin(t, p, oidctest.AuthBasic)
	token := l.token("ann").AccessToken
	if strings.Contains(token, ".") {
		t.Errorf("token %s", token)
	}
	got := introspect(t, p, token)
	for name, want := range map[string]any{
		"active": true, "sub": "ann", "scope": "openid offline_access read", "groups": "anns",
		"client_id": l.config.ClientID, "iss": p.Issuer(), "token_type": "Bearer",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if life := got["exp"].(float64) - got["iat"].(float64); life != 60 {
		t.Errorf("lifetime %v s", life)
	}
	if isActive(t, p, "unknown") {
		t.Error("an unknown token is active")
	}
	if status, _ := post(t, p.URL(oidctest.IntrospectionEndpoint), "resource-server", "wrong",
		url.Values{"token": {token}}); status != http.StatusUnauthorized {
		t.Errorf("introspection with a wrong secret: %d", status)
	}
	p.ExpireAccessTokens()
	if isActive(t, p, token) {
		t.Error("the token is active after its end")
	}
	if !isActive(t, p, l.token("ann").AccessToken) {
		t.Error("a later token is not active")
	}
}

func TestClaims(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{AccessTokenLifetime: time.Minute,
		Claims: func(user string) map[string]any { return map[string]any{"team": "of " + user} }})
	got := claims(t, p, newLogin(t, p, oidctest.AuthNone).token("ann").AccessToken, resource)
	if got["team"] != "of ann" || got["exp"].(float64)-got["iat"].(float64) != 60 {
		t.Errorf("claims %v", got)
	}
}

func TestRefreshTokensRotate(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthNone)
	first := l.token("ann")
	other := l.token("bob")
	second, err := l.refresh(first.RefreshToken)
	if err != nil || second.RefreshToken == first.RefreshToken ||
		second.AccessToken == first.AccessToken {
		t.Fatalf("second token %+v, %v", second, err)
	}
	if got := claims(t, p, second.AccessToken, resource)["sub"]; got != "ann" {
		t.Errorf("subject %v", got)
	}
	_, err = l.refresh(first.RefreshToken)
	wantCode(t, err, "invalid_grant")
	_, err = l.refresh(second.RefreshToken) // revoked, because the first was used again
	wantCode(t, err, "invalid_grant")
	if isActive(t, p, second.AccessToken) || p.Reuses() != 1 || p.Refreshes() != 3 {
		t.Errorf("after a reuse: %d reuses, %d refreshes", p.Reuses(), p.Refreshes())
	}
	if _, err := l.refresh(other.RefreshToken); err != nil {
		t.Errorf("another login: %v", err)
	}
	p.RevokeGrants()
	_, err = l.refresh(other.RefreshToken)
	wantCode(t, err, "invalid_grant")
	if isActive(t, p, other.AccessToken) {
		t.Error("access token is active after RevokeGrants")
	}
}

func TestOneOfConcurrentRefreshesWins(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthNone)
	token := l.token("ann").RefreshToken
	var wg sync.WaitGroup
	won := make(chan bool, 8)
	for range cap(won) {
		wg.Go(func() {
			_, err := l.refresh(token)
			won <- err == nil
		})
	}
	wg.Wait()
	close(won)
	n := 0
	for ok := range won {
		if ok {
			n++
		}
	}
	if n != 1 || p.Reuses() != 7 {
		t.Errorf("%d refreshes succeeded, %d reuses", n, p.Reuses())
	}
}

func TestRefreshTokensWithoutRotation(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{KeepRefreshToken: true, AlwaysRefresh: true,
		EditTokens: func(r map[string]any) { delete(r, "expires_in") }})
	l := newLogin(t, p, oidctest.AuthNone)
	l.config.Scopes = []string{"read"} // not offline_access
	token := l.token("ann")
	if token.RefreshToken == "" || token.ExpiresIn != 0 {
		t.Fatalf("token %+v", token)
	}
	for range 2 {
		next, err := l.refresh(token.RefreshToken)
		if err != nil || next.RefreshToken != token.RefreshToken {
			t.Errorf("refresh: %+v, %v", next, err)
		}
	}
}

func TestRevocation(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l, other := newLogin(t, p, oidctest.AuthBasic), newLogin(t, p, oidctest.AuthBasic)
	revoke := func(l *login, token, secret string) int {
		status, _ := post(t, p.URL(oidctest.RevocationEndpoint), l.config.ClientID, secret,
			url.Values{"token": {token}})
		return status
	}
	token := l.token("ann")
	if status := revoke(other, token.RefreshToken, other.config.ClientSecret); status != 200 ||
		!isActive(t, p, token.AccessToken) {
		t.Errorf("another client's token: %d", status)
	}
	for _, secret := range []string{"wrong", ""} {
		if status := revoke(l, token.RefreshToken, secret); status != http.StatusUnauthorized {
			t.Errorf("secret %q: %d", secret, status)
		}
	}
	if status := revoke(l, token.RefreshToken, l.config.ClientSecret); status != 200 {
		t.Errorf("refresh token: %d", status)
	}
	_, err := l.refresh(token.RefreshToken)
	wantCode(t, err, "invalid_grant")
	if isActive(t, p, token.AccessToken) {
		t.Error("access token is active after the revocation of its refresh token")
	}
	token = l.token("ann")
	if status := revoke(l, token.AccessToken, l.config.ClientSecret); status != 200 ||
		isActive(t, p, token.AccessToken) {
		t.Errorf("access token: %d", status)
	}
	if _, err := l.refresh(token.RefreshToken); err != nil {
		t.Errorf("refresh token after the revocation of the access token: %v", err)
	}
}

// register posts client metadata.
func register(t *testing.T, p *oidctest.Provider, metadata string) (int, map[string]any) {
	t.Helper()
	res, err := http.Post(p.URL(oidctest.RegistrationEndpoint), "application/json",
		strings.NewReader(metadata))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var doc map[string]any
	_ = json.NewDecoder(res.Body).Decode(&doc) // the text of a 404 is not JSON
	return res.StatusCode, doc
}

func TestDynamicRegistration(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	const uris = `"redirect_uris":["` + redirectURI + `"]`
	for _, auth := range []string{oidctest.AuthBasic, oidctest.AuthPost, oidctest.AuthNone} {
		status, doc := register(t, p, `{`+uris+`,"application_type":"native","client_name":"c",`+
			`"grant_types":["authorization_code","refresh_token"],`+
			`"token_endpoint_auth_method":"`+auth+`"}`)
		if status != http.StatusCreated || doc["token_endpoint_auth_method"] != auth ||
			doc["client_name"] != "c" {
			t.Fatalf("%s: %d %v", auth, status, doc)
		}
		l := newLogin(t, p, auth)
		l.config.ClientID = doc["client_id"].(string)
		l.config.ClientSecret, _ = doc["client_secret"].(string)
		if secret := l.config.ClientSecret != ""; secret != (auth != oidctest.AuthNone) {
			t.Errorf("%s: secret %v", auth, secret)
		}
		if token := l.token("ann"); token.RefreshToken == "" {
			t.Errorf("%s: no refresh token", auth)
		}
	}
	// Defaults of RFC 7591: Basic, and no refresh tokens.
	_, doc := register(t, p, `{`+uris+`}`)
	l := newLogin(t, p, oidctest.AuthBasic)
	l.config.ClientID = doc["client_id"].(string)
	l.config.ClientSecret = doc["client_secret"].(string)
	if token := l.token("ann"); token.RefreshToken != "" {
		t.Error("refresh token without the grant")
	}
	for _, bad := range []string{
		`[]`, `{}`, `{"redirect_uris":["/relative"]}`, `{"redirect_uris":["http://a.example/"]}`,
		`{` + uris + `,"application_type":"web"}`,
		`{` + uris + `,"token_endpoint_auth_method":"tls_client_auth"}`,
	} {
		if status, doc := register(t, p, bad); status != http.StatusBadRequest ||
			doc["error"] == nil {
			t.Errorf("%s: %d %v", bad, status, doc)
		}
	}
	if n := len(p.Requests(oidctest.RegistrationEndpoint)[1].Body); n == 0 {
		t.Error("the body of a registration is not recorded")
	}

	none := oidctest.New(t, oidctest.Options{NoRegistration: true})
	if status, _ := register(t, none, `{`+uris+`}`); status != http.StatusNotFound {
		t.Errorf("without registration: %d", status)
	}
	if doc := document(t, none.URL(oidctest.OAuthMetadata)); doc["registration_endpoint"] != nil {
		t.Error("metadata has a registration endpoint")
	}
}

func TestClientMetadataDocument(t *testing.T) {
	var metadata string
	documents := httptest.NewTLSServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if metadata == "" {
				http.NotFound(w, r)
				return
			}
			w.Write([]byte(metadata))
		}))
	defer documents.Close()
	p := oidctest.New(t, oidctest.Options{DocumentClient: documents.Client()})
	l := newLogin(t, p, oidctest.AuthNone)
	l.config.ClientID = documents.URL + "/client.json"
	doc := document(t, p.URL(oidctest.OAuthMetadata))
	if doc["client_id_metadata_document_supported"] != true {
		t.Error("metadata does not say that documents are supported")
	}
	for _, bad := range []string{
		"", "{", `{"client_id":"https://other.example/","redirect_uris":["` + redirectURI + `"]}`,
		`{"client_id":"` + l.config.ClientID + `"}`,
	} {
		metadata = bad
		if redirect, err := p.Approve(l.config.AuthCodeURL("state"), ""); err == nil {
			t.Errorf("%s: redirect to %s", bad, redirect)
		}
	}
	metadata = `{"client_id":"` + l.config.ClientID + `","redirect_uris":["` + redirectURI + `"],` +
		`"grant_types":["authorization_code","refresh_token"]}`
	if token := l.token("ann"); token.RefreshToken == "" {
		t.Error("no refresh token")
	}
	documents.Close()
	if redirect, err := p.Approve(l.config.AuthCodeURL("state"), ""); err == nil {
		t.Errorf("no document: redirect to %s", redirect)
	}
}

func TestIssueToken(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Audience: []string{"api"},
		Claims: func(user string) map[string]any { return map[string]any{"team": "of " + user} }})
	token := p.IssueToken(oidctest.TokenSpec{User: "ann", Scopes: []string{"read", "write"},
		ClientID: "c", Claims: map[string]any{"iat": nil, "role": "admin"}})
	got := claims(t, p, token, "api")
	for name, want := range map[string]any{
		"sub": "ann", "scope": "read write", "client_id": "c", "team": "of ann", "role": "admin",
		"iat": nil,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if typ := header(t, token).Typ; typ != "at+jwt" || !isActive(t, p, token) {
		t.Errorf("typ %s", typ)
	}
	claims(t, p, p.IssueToken(oidctest.TokenSpec{Audience: []string{"other"}}), "other")

	now := time.Now()
	for name, spec := range map[string]oidctest.TokenSpec{
		"expired":       {Lifetime: -time.Minute},
		"not yet valid": {Claims: map[string]any{"nbf": now.Add(time.Hour).Unix()}},
		"issuer":        {Claims: map[string]any{"iss": "https://evil.example"}},
		"audience":      {Audience: []string{"other"}},
		"unsigned":      {Forgery: oidctest.Unsigned},
		"HMAC":          {Forgery: oidctest.SignedHMAC},
		"other key":     {Forgery: oidctest.SignedByOther},
		"unknown key":   {Forgery: oidctest.UnknownKeyID},
	} {
		token := p.IssueToken(spec)
		if _, err := verify(t.Context(), p, token, "api"); err == nil {
			t.Errorf("%s: token is accepted", name)
		}
		h, current := header(t, token), header(t, p.IssueToken(oidctest.TokenSpec{}))
		wantAlg := map[string]string{"unsigned": "none", "HMAC": "HS256"}[name]
		if wantAlg == "" {
			wantAlg = oidctest.ES256
		}
		if h.Alg != wantAlg || name == "other key" && h.Kid != current.Kid ||
			name == "unknown key" && h.Kid == current.Kid {
			t.Errorf("%s: header %+v", name, h)
		}
	}

	opaque := p.IssueToken(oidctest.TokenSpec{User: "bob", Opaque: true})
	if got := introspect(t, p, opaque); got["sub"] != "bob" || got["active"] != true {
		t.Errorf("opaque token: %v", got)
	}
	if isActive(t, p, p.IssueToken(oidctest.TokenSpec{Opaque: true, Lifetime: -time.Second})) {
		t.Error("an expired token is active")
	}
	if !slices.Contains(p.Secrets(), opaque) {
		t.Error("the token is not recorded")
	}
	for name, spec := range map[string]oidctest.TokenSpec{
		"opaque with claims": {Opaque: true, Claims: map[string]any{"a": 1}},
		"no JSON":            {Claims: map[string]any{"a": func() {}}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			p.IssueToken(spec)
		}()
	}
}
