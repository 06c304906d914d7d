package oauthclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	serverURL = "https://mcp.example/a/mcp"
	issuerURL = "https://as.example"
	pathPRM   = "/.well-known/oauth-protected-resource/a/mcp"
	rootPRM   = "/.well-known/oauth-protected-resource"
	oauthMeta = "/.well-known/oauth-authorization-server"
	oidcMeta  = "/.well-known/openid-configuration"
)

// A world is all HTTP servers that an Authorization can reach, in memory: the MCP server at
// serverURL and authorization servers. Fields may be changed before a request.
type world struct {
	mu       sync.Mutex
	requests []string // "METHOD URL" of each request, in order
	bodies   []string
	forms    []url.Values
	headers  []http.Header
	// handlers replace what a URL without its query responds.
	handlers map[string]http.HandlerFunc

	challenge  string            // WWW-Authenticate of the MCP server
	documents  map[string]any    // JSON by URL
	metadata   map[string]any    // of issuerURL, served at metadataAt
	lifetime   int               // expires_in; 0 = absent
	refresh    bool              // refresh tokens are issued
	valid      map[string]bool   // valid refresh tokens, which rotate
	scopes     map[string]string // scope by access token
	secrets    []string          // all tokens, codes and secrets
	challenges map[string]string // code_challenge by code
	count      int
}

func newWorld() *world {
	w := &world{
		handlers: make(map[string]http.HandlerFunc), documents: make(map[string]any),
		valid: make(map[string]bool), scopes: make(map[string]string),
		challenges: make(map[string]string),
		challenge:  `Bearer resource_metadata="https://mcp.example` + pathPRM + `"`,
		lifetime:   3600, refresh: true,
	}
	w.documents["https://mcp.example"+pathPRM] = map[string]any{"resource": serverURL,
		"authorization_servers": []string{issuerURL}}
	w.metadata = map[string]any{
		"issuer": issuerURL, "authorization_endpoint": issuerURL + "/authorize",
		"token_endpoint": issuerURL + "/token", "registration_endpoint": issuerURL + "/register",
		"revocation_endpoint":                   issuerURL + "/revoke",
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"},
	}
	w.documents[issuerURL+oauthMeta] = w.metadata
	return w
}

// secret returns a new value that must not appear in errors and logs.
func (w *world) secret(kind string) string {
	w.count++
	s := fmt.Sprintf("%s-%d-secret", kind, w.count)
	w.secrets = append(w.secrets, s)
	return s
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	at := r.URL.Scheme + "://" + r.URL.Host + r.URL.Path
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	w.mu.Lock()
	w.requests = append(w.requests, r.Method+" "+at)
	w.bodies = append(w.bodies, string(body))
	w.forms = append(w.forms, form)
	w.headers = append(w.headers, r.Header.Clone())
	handler, document := w.handlers[at], w.documents[at]
	w.mu.Unlock()
	switch {
	case handler != nil:
		handler(rw, r)
	case document != nil:
		respond(rw, http.StatusOK, document)
	case at == issuerURL+"/register":
		w.register(rw)
	case at == issuerURL+"/token":
		w.token(rw, form)
	case at == issuerURL+"/revoke":
		w.mu.Lock()
		delete(w.valid, form.Get("token"))
		w.mu.Unlock()
	default:
		http.NotFound(rw, r)
	}
}

func respond(rw http.ResponseWriter, status int, document any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(document)
}

func (w *world) register(rw http.ResponseWriter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	respond(rw, http.StatusCreated, map[string]any{"client_id": fmt.Sprintf("client-%d", len(w.requests)),
		"token_endpoint_auth_method": "none"})
}

// token is the token endpoint. Refresh tokens rotate: the old one is no longer valid.
func (w *world) token(rw http.ResponseWriter, form url.Values) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(code string) {
		respond(rw, http.StatusBadRequest, map[string]any{"error": code,
			"error_description": "because of " + form.Get("refresh_token")[:0] + code})
	}
	scope := form.Get("scope")
	switch form.Get("grant_type") {
	case "authorization_code":
		challenge, known := w.challenges[form.Get("code")]
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if !known || challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
			fail("invalid_grant")
			return
		}
		delete(w.challenges, form.Get("code"))
		scope = w.scopes[form.Get("code")]
	case "refresh_token":
		if !w.valid[form.Get("refresh_token")] {
			fail("invalid_grant")
			return
		}
		delete(w.valid, form.Get("refresh_token"))
		scope = w.scopes[form.Get("refresh_token")]
	case "client_credentials":
	default:
		fail("unsupported_grant_type")
		return
	}
	access := w.secret("access")
	w.scopes[access] = scope
	token := map[string]any{"access_token": access, "token_type": "Bearer"}
	if scope != "" {
		token["scope"] = scope
	}
	if w.lifetime != 0 {
		token["expires_in"] = w.lifetime
	}
	if w.refresh && form.Get("grant_type") != "client_credentials" {
		refresh := w.secret("refresh")
		w.valid[refresh], w.scopes[refresh] = true, scope
		token["refresh_token"] = refresh
	}
	respond(rw, http.StatusOK, token)
}

// approve is the user who approves the login: it returns the parameters of the redirect.
func (w *world) approve(t testing.TB, l *Login) url.Values {
	t.Helper()
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	code := w.secret("code")
	w.challenges[code] = u.Query().Get("code_challenge")
	w.scopes[code] = u.Query().Get("scope")
	return url.Values{"code": {code}, "state": {u.Query().Get("state")}}
}

// count returns the number of requests to a URL.
func (w *world) requestsTo(method, at string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.requests {
		if r == method+" "+at {
			n++
		}
	}
	return n
}

// lastForm returns the form of the last request to a URL, and its headers.
func (w *world) lastForm(t testing.TB, at string) (url.Values, http.Header) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range slices.Backward(w.requests) {
		if r == "POST "+at {
			return w.forms[i], w.headers[i]
		}
	}
	t.Fatalf("no request to %s", at)
	return nil, nil
}

// RoundTrip implements [http.RoundTripper]: the handler runs in a goroutine, and its response is
// read while it is written.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	rw := &pipeResponse{header: make(http.Header), body: pw, started: make(chan struct{})}
	if req.Body == nil {
		req.Body = http.NoBody
	}
	go func() {
		w.ServeHTTP(rw, req)
		rw.WriteHeader(http.StatusOK)
		pw.CloseWithError(req.Context().Err()) // nil = EOF
	}()
	select {
	case <-rw.started:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	context.AfterFunc(req.Context(), func() { pw.CloseWithError(req.Context().Err()) })
	return &http.Response{StatusCode: rw.status, Header: rw.sent, Body: pr, Request: req,
		ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1}, nil
}

// A pipeResponse is the [http.ResponseWriter] of RoundTrip.
type pipeResponse struct {
	header, sent http.Header
	body         *io.PipeWriter
	status       int
	started      chan struct{}
	once         sync.Once
}

func (p *pipeResponse) Header() http.Header { return p.header }

func (p *pipeResponse) WriteHeader(status int) {
	p.once.Do(func() {
		p.status, p.sent = status, p.header.Clone()
		close(p.started)
	})
}

func (p *pipeResponse) Write(text []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.body.Write(text)
}

// client returns an Authorization for the server of the world.
func (w *world) client(t testing.TB, o Options) *Authorization {
	t.Helper()
	o.Name = cmp.Or(o.Name, "docs")
	o.URL = cmp.Or(o.URL, serverURL)
	if o.Store == nil {
		o.Store = NewStore(t.TempDir(), nil)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.guard.own, c.guard.any, c.guard.public = w, w, w
	return c
}

// refused calls Refused with a response of the MCP server.
func (w *world) refused(c *Authorization, token string, status int) (bool, error) {
	resp := &http.Response{StatusCode: status, Header: http.Header{}}
	if w.challenge != "" {
		resp.Header.Set("WWW-Authenticate", w.challenge)
	}
	return c.Refused(context.Background(), token, resp)
}

const redirectURI = "http://127.0.0.1:1234/callback"

// logIn refuses a request and logs in.
func (w *world) logIn(t testing.TB, c *Authorization) {
	t.Helper()
	again, err := w.refused(c, "", http.StatusUnauthorized)
	if _, is := errors.AsType[*LoginError](err); again || !is {
		t.Fatalf("refused: %v, %v", again, err)
	}
	l := begin(t, c)
	if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
		t.Fatal(err)
	}
}

func begin(t testing.TB, c *Authorization) *Login {
	t.Helper()
	l, err := c.BeginLogin(context.Background(), redirectURI)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// token returns the token for the next request.
func token(t testing.TB, c *Authorization) string {
	t.Helper()
	text, err := c.Token(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hasAll reports an error if err does not contain all of the texts.
func hasAll(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not contain %q", err, text)
		}
	}
}

// hidesSecrets reports an error if a text contains a secret of the world.
func (w *world) hidesSecrets(t testing.TB, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, secret := range w.secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%q contains the secret %q", text, secret)
		}
	}
}
