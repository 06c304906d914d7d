package oauthclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLoginSendsPKCEAndResourceInBothRequests(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	l := begin(t, c)
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" ||
		q.Get("resource") != serverURL || q.Get("redirect_uri") != redirectURI ||
		len(q.Get("state")) < 20 || q.Get("response_type") != "code" {
		t.Errorf("authorization request: %s", l.URL)
	}
	form, _ := w.lastForm(t, issuerURL+"/token")
	if form.Get("resource") != serverURL || form.Get("redirect_uri") != redirectURI ||
		len(form.Get("code_verifier")) < 43 {
		t.Errorf("token request: %v", form)
	}
	if got := token(t, c); got == "" || c.NeedsLogin() != nil {
		t.Errorf("token %q, needs %v", got, c.NeedsLogin())
	}
}

func TestIssOfTheRedirectIsChecked(t *testing.T) {
	for _, test := range []struct {
		advertised bool
		iss        string
		ok         bool
	}{
		{true, issuerURL, true}, {true, "", false}, {true, "https://evil.example", false},
		{true, issuerURL + "/", false}, {false, "", true}, {false, issuerURL, true},
		{false, "https://evil.example", false},
	} {
		w := newWorld()
		w.metadata["authorization_response_iss_parameter_supported"] = test.advertised
		c := w.client(t, Options{})
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		l := begin(t, c)
		redirect := w.approve(t, l)
		if test.iss != "" {
			redirect.Set("iss", test.iss)
		}
		err := l.Finish(context.Background(), redirect)
		if (err == nil) != test.ok {
			t.Errorf("%+v: %v", test, err)
		}
		if n := w.requestsTo("POST", issuerURL+"/token"); (n == 1) != test.ok {
			t.Errorf("%+v: %d token requests", test, n)
		}
	}
}

func TestRedirectWithAnotherStateTwiceOrWithoutCode(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	_, _ = w.refused(c, "", http.StatusUnauthorized)
	l, other := begin(t, c), begin(t, c)
	if err := l.Finish(context.Background(), w.approve(t, other)); err != ErrOtherLogin {
		t.Errorf("another state: %v", err)
	}
	if err := l.Finish(context.Background(), url.Values{"code": {"x"}}); err != ErrOtherLogin {
		t.Errorf("no state: %v", err)
	}
	redirect := w.approve(t, l)
	if err := l.Finish(context.Background(), redirect); err != nil {
		t.Fatalf("the login itself: %v", err)
	}
	hasAll(t, l.Finish(context.Background(), redirect), "completed before")
	hasAll(t, other.Finish(context.Background(), url.Values{"state": {other.State()}}), "no code")
	if n := w.requestsTo("POST", issuerURL+"/token"); n != 1 {
		t.Errorf("%d token requests", n)
	}
}

func TestRefusedLogin(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	_, _ = w.refused(c, "", http.StatusUnauthorized)
	l := begin(t, c)
	err := l.Finish(context.Background(), url.Values{"state": {l.State()},
		"error": {"access_denied"}, "error_description": {"the user\nsaid no"}})
	hasAll(t, err, "refused the login", `"access_denied"`, `the user\nsaid no`)
	if c.NeedsLogin() == nil {
		t.Error("no login is needed")
	}
}

func TestClientIsPreregisteredOrADocumentOrRegistered(t *testing.T) {
	const document = "https://gw.example/client.json"
	for name, test := range map[string]struct {
		settings Options
		cimd     bool // the server supports client ID metadata documents
		want     string
	}{
		"preregistered": {Options{ClientID: "mine"}, true, "mine"},
		"preregistered, with a document": {Options{ClientID: "mine", ClientMetadataURL: document},
			true, "mine"},
		"document":                       {Options{ClientMetadataURL: document}, true, document},
		"document that is not supported": {Options{ClientMetadataURL: document}, false, "client-"},
		"registered":                     {Options{}, true, "client-"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.metadata["client_id_metadata_document_supported"] = test.cimd
			c := w.client(t, test.settings)
			w.logIn(t, c)
			form, _ := w.lastForm(t, issuerURL+"/token")
			if id := form.Get("client_id"); !strings.HasPrefix(id, test.want) {
				t.Errorf("client_id is %q, want %q", id, test.want)
			}
			registered := w.requestsTo("POST", issuerURL+"/register")
			if (registered == 1) != (test.want == "client-") {
				t.Errorf("%d registrations", registered)
			}
		})
	}
}

// An authorization server may permit http for the redirect URI only of a native application.
func TestRegistrationNamesTheTypeOfTheApplication(t *testing.T) {
	for redirect, want := range map[string]string{
		redirectURI: "native", "http://localhost:1/login/callback": "native",
		"http://[::1]:1/login/callback":          "native",
		"https://gateway.example/login/callback": "web",
	} {
		w := newWorld()
		var sent struct {
			ApplicationType string   `json:"application_type"`
			RedirectURIs    []string `json:"redirect_uris"`
			GrantTypes      []string `json:"grant_types"`
			AuthMethod      string   `json:"token_endpoint_auth_method"`
		}
		w.handlers[issuerURL+"/register"] = func(rw http.ResponseWriter, _ *http.Request) {
			w.mu.Lock()
			body := w.bodies[len(w.bodies)-1]
			w.mu.Unlock()
			if err := json.Unmarshal([]byte(body), &sent); err != nil {
				t.Error(err)
			}
			w.register(rw)
		}
		c := w.client(t, Options{})
		if _, err := c.BeginLogin(context.Background(), redirect); err != nil {
			t.Fatal(err)
		}
		if sent.ApplicationType != want || !slices.Equal(sent.RedirectURIs, []string{redirect}) ||
			!slices.Contains(sent.GrantTypes, "refresh_token") || sent.AuthMethod != "none" {
			t.Errorf("%s: registered as %+v", redirect, sent)
		}
	}
}

func TestRegistrationIsKeptForTheNextLogin(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	begin(t, c)
	if n := w.requestsTo("POST", issuerURL+"/register"); n != 1 {
		t.Errorf("%d registrations", n)
	}
	if uri := c.RedirectURI(); uri != redirectURI {
		t.Errorf("the redirect URI is %q", uri)
	}
	if _, err := c.BeginLogin(context.Background(), "http://127.0.0.1:99/callback"); err != nil {
		t.Error(err)
	}
	if n := w.requestsTo("POST", issuerURL+"/register"); n != 2 {
		t.Errorf("%d registrations for two redirect URIs", n)
	}
}

func TestServerThatRegistersNobodyNamesTheKeyToSet(t *testing.T) {
	w := newWorld()
	delete(w.metadata, "registration_endpoint")
	err := begins(w, w.client(t, Options{}))
	hasAll(t, err, "oauth.client_id, and oauth.redirect_port: ", redirectURI)
	if port := portToSet("http://127.0.0.1:38251/login/callback"); !strings.Contains(port, " 38251") {
		t.Error(port)
	}
	if port := portToSet("https://gateway.example/login/callback"); port != "" {
		t.Error(port)
	}
}

// A server that is down is named in plain words, with what to check.
func TestServerThatIsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c, err := New(Options{Name: "a", URL: "http://" + address + "/mcp", Store: NewStore("", nil)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.BeginLogin(context.Background(), redirectURI)
	want := "no connection to " + address + ": connection refused; check the url of the backend, " +
		"and that the server runs"
	if runtime.GOOS != "windows" && (err == nil || err.Error() != want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestRefusedRegistrationHidesTheResponse(t *testing.T) {
	for name, respondWith := range map[string]http.HandlerFunc{
		"error": func(rw http.ResponseWriter, _ *http.Request) {
			respond(rw, 400, map[string]any{"error": "invalid_redirect_uri", "error_description": "no"})
		},
		"page": func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "SECRET-PAGE", http.StatusInternalServerError)
		},
		"not JSON": func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte("SECRET-PAGE"))
		},
	} {
		w := newWorld()
		w.handlers[issuerURL+"/register"] = respondWith
		err := begins(w, w.client(t, Options{}))
		hasAll(t, err, "does not register the gateway")
		if strings.Contains(err.Error(), "SECRET-PAGE") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokenEndpointAuthentication(t *testing.T) {
	for _, test := range []struct {
		supported []string
		secret    string
		want      AuthStyle
	}{
		{[]string{"none"}, "", AuthNone},
		{[]string{"client_secret_basic"}, "s3cr:t", AuthBasic},
		{[]string{"client_secret_post"}, "s3cr:t", AuthPost},
		{[]string{"client_secret_post", "client_secret_basic"}, "s3cr:t", AuthBasic},
		{nil, "s3cr:t", AuthBasic}, // RFC 8414 §2
		{nil, "", AuthNone},
	} {
		w := newWorld()
		w.metadata["token_endpoint_auth_methods_supported"] = test.supported
		c := w.client(t, Options{ClientID: "m:e", ClientSecret: test.secret})
		w.logIn(t, c)
		form, header := w.lastForm(t, issuerURL+"/token")
		basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("m%3Ae:s3cr%3At"))
		got := AuthNone
		switch {
		case header.Get("Authorization") == basic && form.Get("client_secret") == "":
			got = AuthBasic
		case header.Get("Authorization") != "":
			t.Errorf("Authorization: %s", header.Get("Authorization"))
		case form.Get("client_secret") == test.secret && test.secret != "":
			got = AuthPost
		}
		if got != test.want || got != AuthBasic && form.Get("client_id") != "m:e" {
			t.Errorf("%+v: %s, form %v", test, got, form)
		}
		if n := w.requestsTo("POST", issuerURL+"/token"); n != 1 {
			t.Errorf("the code was sent %d times", n)
		}
	}
}

func TestRegisteredClientUsesTheMethodOfTheResponse(t *testing.T) {
	for _, test := range []struct {
		supported []string
		response  map[string]any
		want      AuthStyle
	}{
		{[]string{"client_secret_post"}, map[string]any{"client_secret": "x",
			"token_endpoint_auth_method": "client_secret_post"}, AuthPost},
		{[]string{"none"}, map[string]any{"client_secret": "x"}, AuthNone},
		{nil, map[string]any{"client_secret": "x"}, AuthBasic},
		{[]string{"client_secret_basic"}, map[string]any{}, AuthNone}, // no secret
	} {
		w := newWorld()
		w.metadata["token_endpoint_auth_methods_supported"] = test.supported
		test.response["client_id"] = "me"
		w.documents[issuerURL+"/register"] = test.response
		var secrets []string
		c := w.client(t, Options{OnSecret: func(s string) { secrets = append(secrets, s) }})
		w.logIn(t, c)
		if got := c.grant.Client.AuthStyle; got != test.want {
			t.Errorf("%v: %s, want %s", test.response, got, test.want)
		}
		if test.response["client_secret"] != nil && !slices.Contains(secrets, "x") {
			t.Errorf("secrets are %q", secrets)
		}
	}
}

func TestRegisteredClientThatIsTooLong(t *testing.T) {
	for _, document := range []map[string]any{
		{"client_id": strings.Repeat("c", maxClientID+1)},
		{"client_id": "c", "client_secret": strings.Repeat("c", maxToken+1)},
	} {
		w := newWorld()
		w.handlers[issuerURL+"/register"] = func(rw http.ResponseWriter, _ *http.Request) {
			respond(rw, http.StatusCreated, document)
		}
		hasAll(t, begins(w, w.client(t, Options{})), "too long", issuerURL)
	}
}

func TestExpiredClientSecretIsReplaced(t *testing.T) {
	w := newWorld()
	w.documents[issuerURL+"/register"] = map[string]any{"client_id": "me", "client_secret": "x",
		"client_secret_expires_at": time.Now().Add(-time.Minute).Unix()}
	c := w.client(t, Options{})
	w.logIn(t, c)
	begin(t, c)
	if n := w.requestsTo("POST", issuerURL+"/register"); n != 2 {
		t.Errorf("%d registrations", n)
	}
}

func TestScopes(t *testing.T) {
	for name, test := range map[string]struct {
		challenge string
		resource  []string // scopes_supported of the resource
		server    []string // scopes_supported of the authorization server
		settings  []string
		want      string
	}{
		"of the challenge":           {"a b", []string{"r"}, nil, nil, "a b"},
		"of the resource":            {"", []string{"r", "s"}, nil, nil, "r s"},
		"none":                       {"", nil, []string{"x"}, nil, ""},
		"configured":                 {"a", []string{"r"}, []string{offlineAccess}, []string{"c"}, "c"},
		"offline_access":             {"a", nil, []string{offlineAccess, "x"}, nil, "a offline_access"},
		"offline_access by default":  {"", nil, []string{offlineAccess}, nil, offlineAccess},
		"offline_access given twice": {offlineAccess, nil, []string{offlineAccess}, nil, offlineAccess},
	} {
		w := newWorld()
		w.metadata["scopes_supported"] = test.server
		w.documents["https://mcp.example"+pathPRM].(map[string]any)["scopes_supported"] = test.resource
		w.challenge = "Bearer"
		if test.challenge != "" {
			w.challenge = `Bearer scope="` + test.challenge + `"`
		}
		c := w.client(t, Options{Scopes: test.settings})
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		u, _ := url.Parse(begin(t, c).URL)
		if got := u.Query().Get("scope"); got != test.want ||
			u.Query().Has("scope") != (test.want != "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestTokenThatCannotBeUsed(t *testing.T) {
	for what, document := range map[string]map[string]any{
		"longer than 32 KiB": {"access_token": strings.Repeat("a", 1<<20-100)},
		"the token is longer": {"access_token": "a",
			"refresh_token": strings.Repeat("a", maxToken+1)},
		"DPoP":       {"access_token": "a", "token_type": "DPoP"},
		"characters": {"access_token": "a\r\nX: y", "token_type": "Bearer"},
		"":           {"token_type": "Bearer"},
	} {
		w := newWorld()
		w.documents[issuerURL+"/token"] = document
		c := w.client(t, Options{})
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		l := begin(t, c)
		hasAll(t, l.Finish(context.Background(), w.approve(t, l)), what)
		if got := token(t, c); got != "" {
			t.Errorf("token %q", got)
		}
	}
}

// A response of the token endpoint may repeat the request, and so the secrets in it.
func TestErrorsContainNoSecrets(t *testing.T) {
	w := newWorld()
	w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, "code, code_verifier and refresh_token: "+strings.Join(w.secrets, " "), 500)
	}
	c := w.client(t, Options{})
	_, _ = w.refused(c, "", http.StatusUnauthorized)
	l := begin(t, c)
	err := l.Finish(context.Background(), w.approve(t, l))
	hasAll(t, err, "HTTP 500")
	w.hidesSecrets(t, err.Error())
	delete(w.handlers, issuerURL+"/token")
	w.logIn2(t, c)
	c.grant.Expires = time.Now()
	w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, strings.Join(w.secrets, " "), http.StatusBadGateway)
	}
	_, err = c.Token(context.Background())
	hasAll(t, err, "HTTP 502")
	w.hidesSecrets(t, err.Error())
}

// A secret that the authorization server repeats is hidden before the text is cut, because a part
// of it would not be masked.
func TestDescriptionThatRepeatsSecrets(t *testing.T) {
	w := newWorld()
	w.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
	c := w.client(t, Options{ClientID: "me", ClientSecret: "hidden+secret"})
	w.logIn(t, c)
	var shown []string
	w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, r *http.Request) {
		user, secret, _ := r.BasicAuth()
		w.mu.Lock()
		form := w.forms[len(w.forms)-1]
		w.mu.Unlock()
		secrets := []string{form.Get("code"), form.Get("code_verifier"), form.Get("refresh_token"),
			secret}
		shown = append(shown, secrets...)
		respond(rw, http.StatusBadRequest, map[string]any{"error": "invalid_request",
			"error_description": strings.Repeat("-", maxShown-10) + strings.Join(secrets, " ") + user})
	}
	l := begin(t, c)
	_, refresh := w.refused(c, token(t, c), http.StatusUnauthorized)
	for _, err := range []error{l.Finish(context.Background(), w.approve(t, l)), refresh} {
		hasAll(t, err, "invalid_request")
		for _, secret := range shown {
			if len(secret) > 9 && strings.Contains(err.Error(), secret[:9]) {
				t.Errorf("%q contains a part of %q", err, secret)
			}
		}
	}
	if len(shown) != 8 {
		t.Errorf("repeated: %q", shown)
	}
}

// The page of the login has the state of the redirect, but no code.
func TestLoginPageInsteadOfTheRedirect(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	l := begin(t, c)
	u, _ := url.Parse(l.URL)
	if err := l.Finish(context.Background(), u.Query()); err != ErrNoRedirect {
		t.Errorf("the login page: %v", err)
	}
	if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
		t.Errorf("the redirect after it: %v", err)
	}
}

// Codes and code verifiers are secrets too.
func TestEachSecretIsMaskedBeforeItIsUsed(t *testing.T) {
	w := newWorld()
	masked := map[string]bool{}
	c := w.client(t, Options{OnSecret: func(secret string) { masked[secret] = true }})
	l := begin(t, c)
	redirect := w.approve(t, l)
	w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, _ *http.Request) {
		if !masked[redirect.Get("code")] || !masked[l.verifier] {
			t.Error("code or verifier is not masked")
		}
		w.token(rw, w.forms[len(w.forms)-1])
	}
	if err := l.Finish(context.Background(), redirect); err != nil {
		t.Fatal(err)
	}
	for _, secret := range w.secrets {
		if !masked[secret] {
			t.Errorf("%q is not masked", secret)
		}
	}
}

// logIn2 logs in, without a refused request before.
func (w *world) logIn2(t testing.TB, c *Authorization) {
	t.Helper()
	l := begin(t, c)
	if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
		t.Fatal(err)
	}
}

func TestLogoutRevokesAndDeletes(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	g := *c.grant
	revoked, revokeErr, err := c.Logout(context.Background())
	if !revoked || revokeErr != nil || err != nil {
		t.Fatal(revoked, revokeErr, err)
	}
	if n := w.requestsTo("POST", issuerURL+"/revoke"); n != 2 || w.valid[g.Secrets.Refresh] {
		t.Errorf("%d revocations, valid tokens %v", n, w.valid)
	}
	if got := token(t, c); got != "" {
		t.Errorf("token %q", got)
	}
	if stored, err := c.Store.load(c.key); stored != nil || err != nil {
		t.Errorf("stored: %v, %v", stored, err)
	}
	if _, _, err := c.Logout(context.Background()); !errors.Is(err, ErrNoLogin) {
		t.Errorf("second logout: %v", err)
	}
}

func TestLogoutDeletesEvenIfTheRevocationFails(t *testing.T) {
	w := newWorld()
	w.handlers[issuerURL+"/revoke"] = func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
	c := w.client(t, Options{})
	w.logIn(t, c)
	revoked, revokeErr, err := c.Logout(context.Background())
	if revoked || err != nil {
		t.Error(revoked, err)
	}
	hasAll(t, revokeErr, "503")
	if got := token(t, c); got != "" {
		t.Errorf("token %q", got)
	}
	delete(w.metadata, "revocation_endpoint")
	w.logIn(t, c)
	if revoked, revokeErr, err := c.Logout(context.Background()); revoked || revokeErr != nil ||
		err != nil {
		t.Error(revoked, revokeErr, err)
	}
}
