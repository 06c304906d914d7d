package oidctest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"mcpgateway/internal/mcptest/oidctest"
)

const (
	redirectURI = "http://127.0.0.1:1234/callback"
	resource    = "http://127.0.0.1:4321/mcp"
)

// A login is an OAuth client of a provider.
type login struct {
	t        *testing.T
	provider *oidctest.Provider
	config   oauth2.Config
	resource string // empty = none
}

// newLogin registers a client that authenticates in the given way, and requests refresh tokens.
func newLogin(t *testing.T, p *oidctest.Provider, auth string) *login {
	t.Helper()
	c := p.AddClient(oidctest.Client{Auth: auth, RedirectURIs: []string{redirectURI}})
	return &login{t: t, provider: p, resource: resource, config: oauth2.Config{
		ClientID: c.ID, ClientSecret: c.Secret, RedirectURL: redirectURI,
		Scopes: []string{"openid", "offline_access", "read"},
		Endpoint: oauth2.Endpoint{
			AuthURL:   p.URL(oidctest.AuthorizationEndpoint),
			TokenURL:  p.URL(oidctest.TokenEndpoint),
			AuthStyle: authStyles[auth],
		},
	}}
}

var authStyles = map[string]oauth2.AuthStyle{
	oidctest.AuthBasic: oauth2.AuthStyleInHeader,
	oidctest.AuthPost:  oauth2.AuthStyleInParams,
	oidctest.AuthNone:  oauth2.AuthStyleInParams,
}

// resourceOption is the parameter resource, or nothing.
func (l *login) resourceOption() []oauth2.AuthCodeOption {
	if l.resource == "" {
		return nil
	}
	return []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("resource", l.resource)}
}

// approve lets a user approve, and returns the authorization response with the code verifier.
func (l *login) approve(user string) (response url.Values, verifier string) {
	l.t.Helper()
	verifier = oauth2.GenerateVerifier()
	redirect, err := l.provider.Approve(l.config.AuthCodeURL("state",
		append(l.resourceOption(), oauth2.S256ChallengeOption(verifier))...), user)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.params(redirect), verifier
}

// params returns the parameters of a redirect to the client.
func (l *login) params(redirect string) url.Values {
	l.t.Helper()
	at, params, _ := strings.Cut(redirect, "?")
	values, err := url.ParseQuery(params)
	if at != redirectURI || err != nil || values.Get("state") != "state" {
		l.t.Fatalf("redirect to %s: %v", redirect, err)
	}
	return values
}

// token completes a login.
func (l *login) token(user string) *oauth2.Token {
	l.t.Helper()
	response, verifier := l.approve(user)
	token, err := l.exchange(response.Get("code"), verifier)
	if err != nil {
		l.t.Fatal(err)
	}
	return token
}

func (l *login) exchange(code, verifier string) (*oauth2.Token, error) {
	return l.config.Exchange(l.t.Context(), code,
		append(l.resourceOption(), oauth2.VerifierOption(verifier))...)
}

// refresh uses a refresh token.
func (l *login) refresh(token string) (*oauth2.Token, error) {
	return l.config.TokenSource(l.t.Context(), &oauth2.Token{RefreshToken: token}).Token()
}

// wantCode fails the test unless err is the OAuth error.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *oauth2.RetrieveError
	if !asError(err, &e) || e.ErrorCode != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

// document reads a JSON object from a URL.
func document(t *testing.T, url string) map[string]any {
	t.Helper()
	status, body := get(t, url)
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", url, status, err)
	}
	return doc
}

func get(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

// post posts a form with Basic credentials, and returns the status and the JSON object.
func post(t *testing.T, to, id, secret string, form url.Values) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if secret != "" {
		req.SetBasicAuth(id, secret)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var doc map[string]any
	_ = json.NewDecoder(res.Body).Decode(&doc) // an empty body is not an error
	return res.StatusCode, doc
}

func TestLoginWithEachAuthMethod(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	for _, auth := range []string{oidctest.AuthBasic, oidctest.AuthPost, oidctest.AuthNone} {
		t.Run(auth, func(t *testing.T) {
			l := newLogin(t, p, auth)
			token := l.token("ann")
			if token.AccessToken == "" || token.RefreshToken == "" || token.ExpiresIn != 3599 &&
				token.ExpiresIn != 3600 {
				t.Errorf("token %+v", token)
			}
			for other, style := range authStyles {
				if style == authStyles[auth] {
					continue
				}
				wrong := *l
				wrong.config.Endpoint.AuthStyle = style
				response, verifier := l.approve("")
				_, err := wrong.exchange(response.Get("code"), verifier)
				if wantCode(t, err, "invalid_client"); t.Failed() {
					t.Fatalf("as %s", other)
				}
			}
			requests := p.Requests(oidctest.TokenEndpoint)
			if r := requests[0]; r.Auth == "" || r.Method != http.MethodPost {
				t.Errorf("request %+v", r)
			}
		})
	}
	c := newLogin(t, p, oidctest.AuthPost)
	c.config.ClientSecret = "wrong"
	response, verifier := c.approve("")
	_, err := c.exchange(response.Get("code"), verifier)
	wantCode(t, err, "invalid_client")
	c.config.ClientID = "unknown"
	_, err = c.exchange("code", "verifier")
	wantCode(t, err, "invalid_client")
}

func TestAuthorizationResponseHasIssuer(t *testing.T) {
	for _, path := range []string{"", "/tenant"} {
		p := oidctest.New(t, oidctest.Options{Path: path})
		response, _ := newLogin(t, p, oidctest.AuthNone).approve("")
		if response.Get("iss") != p.Issuer() || !strings.HasSuffix(p.Issuer(), path) {
			t.Errorf("iss %q of the issuer %q", response.Get("iss"), p.Issuer())
		}
	}
	p := oidctest.New(t, oidctest.Options{
		EditRedirect: func(params url.Values) { params.Del("iss") },
	})
	if response, _ := newLogin(t, p, oidctest.AuthNone).approve(""); response.Has("iss") {
		t.Errorf("response %v", response)
	}
}

func TestMetadata(t *testing.T) {
	for _, path := range []string{"", "/tenant"} {
		p := oidctest.New(t, oidctest.Options{Path: path, Scopes: []string{"read"},
			EditMetadata: func(d map[string]any) { d["extra"] = true }})
		origin := strings.TrimSuffix(p.Issuer(), path)
		for _, url := range []string{
			p.URL(oidctest.OAuthMetadata), p.URL(oidctest.OpenIDMetadata),
			origin + "/.well-known/openid-configuration" + path,
		} {
			d := document(t, url)
			for name, want := range map[string]any{
				"issuer":                 p.Issuer(),
				"authorization_endpoint": p.URL(oidctest.AuthorizationEndpoint),
				"token_endpoint":         p.URL(oidctest.TokenEndpoint),
				"revocation_endpoint":    p.URL(oidctest.RevocationEndpoint),
				"introspection_endpoint": p.URL(oidctest.IntrospectionEndpoint),
				"registration_endpoint":  p.URL(oidctest.RegistrationEndpoint),
				"jwks_uri":               p.URL(oidctest.KeysEndpoint), "extra": true,
				"authorization_response_iss_parameter_supported": true,
				"client_id_metadata_document_supported":          false,
			} {
				if d[name] != want {
					t.Errorf("%s: %s is %v, want %v", url, name, d[name], want)
				}
			}
			if s := d["scopes_supported"]; len(s.([]any)) != 3 {
				t.Errorf("%s: scopes %v", url, s)
			}
			if s := d["code_challenge_methods_supported"].([]any); len(s) != 1 || s[0] != "S256" {
				t.Errorf("%s: PKCE %v", url, s)
			}
		}
		if status, _ := get(t, origin+"/unknown"); status != http.StatusNotFound {
			t.Errorf("unknown path: %d", status)
		}
	}
}

func TestUserAndDenial(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthNone)
	for _, want := range []struct{ set, browser, user string }{
		{"", "", oidctest.DefaultUser}, {"", "ann", "ann"}, {"bob", "", "bob"},
		{"bob", "ann", "ann"},
	} {
		if want.set != "" {
			p.SetUser(want.set)
		}
		token := l.token(want.browser).AccessToken
		if got := claims(t, p, token, resource)["sub"]; got != want.user {
			t.Errorf("%+v: subject %v", want, got)
		}
	}
	p.SetDenied(true)
	response, _ := l.approve("ann")
	if response.Get("error") != "access_denied" || response.Has("code") ||
		response.Get("iss") != p.Issuer() {
		t.Errorf("denied: %v", response)
	}
	p.SetDenied(false)
	l.token("ann")
}

// A plain HTTP client completes a login when it follows the redirects.
func TestLoginByFollowingRedirects(t *testing.T) {
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.FormValue("code"))
	}))
	defer callback.Close()
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthNone)
	l.config.RedirectURL = callback.URL + "/callback" // another port than the registered one
	verifier := oauth2.GenerateVerifier()
	status, code := get(t, l.config.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)))
	l.resource = ""
	if _, err := l.exchange(string(code), verifier); err != nil || status != http.StatusOK {
		t.Errorf("%d %v", status, err)
	}
}

func TestAuthorizationRequestNeedsPKCE(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthBasic)
	for name, option := range map[string]oauth2.AuthCodeOption{
		"none":  oauth2.SetAuthURLParam("a", "b"),
		"plain": oauth2.SetAuthURLParam("code_challenge", "plain"),
	} {
		redirect, err := p.Approve(l.config.AuthCodeURL("state", option), "")
		if err != nil || l.params(redirect).Get("error") != "invalid_request" {
			t.Errorf("%s: %s %v", name, redirect, err)
		}
	}
	response, _ := l.approve("")
	_, err := l.exchange(response.Get("code"), oauth2.GenerateVerifier())
	wantCode(t, err, "invalid_grant")
}

func TestCodeWorksOnce(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthNone)
	response, verifier := l.approve("")
	if _, err := l.exchange(response.Get("code"), verifier); err != nil {
		t.Fatal(err)
	}
	_, err := l.exchange(response.Get("code"), verifier)
	wantCode(t, err, "invalid_grant")
}

func TestUnregisteredRedirectIsRefused(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthNone)
	l.config.RedirectURL = "https://evil.example/callback"
	if redirect, err := p.Approve(l.config.AuthCodeURL("state"), ""); err == nil {
		t.Errorf("redirect to %s", redirect)
	}
}

func TestResource(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{RequireResource: true})
	l := newLogin(t, p, oidctest.AuthBasic)
	token := l.token("")
	if aud := claims(t, p, token.AccessToken, resource)["aud"]; aud == nil {
		t.Error("no audience")
	}
	// x/oauth2 sends no resource with a refresh token.
	_, err := l.refresh(token.RefreshToken)
	wantCode(t, err, "invalid_target")
	response, verifier := l.approve("")
	l.resource = "https://other.example/mcp"
	_, err = l.exchange(response.Get("code"), verifier)
	wantCode(t, err, "invalid_target")
	l.resource = ""
	if response, _ := l.approve(""); response.Get("error") != "invalid_target" {
		t.Errorf("without resource: %v", response)
	}

	fixed := oidctest.New(t, oidctest.Options{Audience: []string{"api", "other"}})
	claims(t, fixed, newLogin(t, fixed, oidctest.AuthNone).token("").AccessToken, "other")

	none := oidctest.New(t, oidctest.Options{})
	l = newLogin(t, none, oidctest.AuthNone)
	l.resource = ""
	claims(t, none, l.token("").AccessToken, l.config.ClientID)
}

func TestScopes(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Scopes: []string{"read", "write"}})
	l := newLogin(t, p, oidctest.AuthNone)
	for _, want := range []struct{ requested, granted string }{
		{"read", "read"}, {"read admin", "read"}, {"", "openid read write"},
	} {
		l.config.Scopes = strings.Fields(want.requested)
		token := l.token("")
		if got := token.Extra("scope"); got != want.granted {
			t.Errorf("scopes %q: granted %v", want.requested, got)
		}
		if got := claims(t, p, token.AccessToken, resource)["scope"]; got != want.granted {
			t.Errorf("scopes %q: claim %v", want.requested, got)
		}
		if token.RefreshToken != "" {
			t.Errorf("scopes %q: refresh token", want.requested)
		}
	}
}

func TestClientCredentials(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Scopes: []string{"read"}, RequireResource: true})
	c := p.AddClient(oidctest.Client{ID: "machine", Secret: "s3cret",
		Grants: []string{"client_credentials"}})
	config := clientcredentials.Config{
		ClientID: c.ID, ClientSecret: c.Secret, TokenURL: p.URL(oidctest.TokenEndpoint),
		Scopes: []string{"read", "admin"}, AuthStyle: oauth2.AuthStyleInHeader,
		EndpointParams: url.Values{"resource": {resource}},
	}
	token, err := config.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := claims(t, p, token.AccessToken, resource)
	if got["sub"] != "machine" || got["scope"] != "read" || token.RefreshToken != "" {
		t.Errorf("claims %v", got)
	}
	config.ClientSecret = "wrong"
	_, err = config.Token(t.Context())
	wantCode(t, err, "invalid_client")
	// A client that logs in users has no such grant.
	l := newLogin(t, p, oidctest.AuthBasic)
	config.ClientID, config.ClientSecret = l.config.ClientID, l.config.ClientSecret
	_, err = config.Token(t.Context())
	wantCode(t, err, "unauthorized_client")
}

func TestFaults(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	url := p.URL(oidctest.OAuthMetadata)
	p.SetFault(oidctest.OAuthMetadata, oidctest.Fault{Status: 503, Body: "busy", Times: 2,
		Header: http.Header{"Retry-After": {"1"}}})
	for range 2 {
		if status, body := get(t, url); status != 503 || string(body) != "busy" {
			t.Errorf("%d %s", status, body)
		}
	}
	document(t, url)
	if n := p.Counts()[oidctest.OAuthMetadata]; n != 3 {
		t.Errorf("%d requests", n)
	}

	p.SetFault(oidctest.OAuthMetadata, oidctest.Fault{Status: 200, Endless: true,
		Body: strings.Repeat("x", 1<<16)})
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, res.Body, 1<<20); n != 1<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	p.ClearFaults() // ends the response
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	res.Body.Close()

	// A request that hangs ends with the client, or with the fault.
	p.SetFault(oidctest.OAuthMetadata, oidctest.Fault{Hang: true, Delay: time.Nanosecond})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Errorf("hanging endpoint: %s", res.Status)
	}
	document(t, p.URL(oidctest.OpenIDMetadata)) // no other endpoint is affected
	// A client sends a GET again if a connection that it has used before is closed.
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, want := range []struct {
		fault  oidctest.Fault
		status int // 0 = the connection is closed
	}{
		{oidctest.Fault{Hang: true}, 0},
		{oidctest.Fault{Delay: time.Hour}, http.StatusOK},
		{oidctest.Fault{Delay: time.Hour, Status: 502}, 502},
	} {
		before := p.Counts()[oidctest.KeysEndpoint]
		p.SetFault(oidctest.KeysEndpoint, want.fault)
		status := make(chan int)
		go func() {
			res, err := fresh.Get(p.URL(oidctest.KeysEndpoint))
			if err != nil {
				status <- 0
				return
			}
			res.Body.Close()
			status <- res.StatusCode
		}()
		waitUntil(t, func() bool { return p.Counts()[oidctest.KeysEndpoint] == before+1 })
		p.ClearFaults()
		if got := <-status; got != want.status {
			t.Errorf("%+v: status %d", want.fault, got)
		}
	}
}

// Everything ends with the test, also requests that a fault blocks.
func TestEndOfTestEndsBlockedRequests(t *testing.T) {
	done := make(chan bool)
	t.Run("provider", func(t *testing.T) {
		p := oidctest.New(t, oidctest.Options{})
		p.SetFault(oidctest.KeysEndpoint, oidctest.Fault{Hang: true})
		go func() {
			defer close(done)
			if res, err := http.Get(p.URL(oidctest.KeysEndpoint)); err == nil {
				res.Body.Close()
			}
		}()
		waitUntil(t, func() bool { return p.Counts()[oidctest.KeysEndpoint] == 1 })
	})
	<-done
}

func TestSecretsAreRecorded(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	l := newLogin(t, p, oidctest.AuthPost)
	response, verifier := l.approve("")
	token, err := l.exchange(response.Get("code"), verifier)
	if err != nil {
		t.Fatal(err)
	}
	secrets := p.Secrets()
	for name, secret := range map[string]string{
		"client secret": l.config.ClientSecret, "code": response.Get("code"), "verifier": verifier,
		"access token": token.AccessToken, "refresh token": token.RefreshToken,
		"ID token":     token.Extra("id_token").(string),
		"issued token": p.IssueToken(oidctest.TokenSpec{}),
	} {
		if name == "issued token" {
			secrets = p.Secrets()
		}
		if !slices.Contains(secrets, secret) || secret == "" {
			t.Errorf("%s is not recorded", name)
		}
	}
}

func TestIDToken(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Alg: oidctest.RS256})
	l := newLogin(t, p, oidctest.AuthNone)
	raw := l.token("ann").Extra("id_token").(string)
	discovered, err := oidc.NewProvider(t.Context(), p.Issuer())
	if err != nil {
		t.Fatal(err)
	}
	id, err := discovered.Verifier(&oidc.Config{ClientID: l.config.ClientID}).
		Verify(t.Context(), raw)
	if err != nil || id.Subject != "ann" {
		t.Errorf("ID token %+v, %v", id, err)
	}
}
