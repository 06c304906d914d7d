package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// begins returns the error of BeginLogin after a refused request.
func begins(w *world, c *Authorization) error {
	_, err := w.refused(c, "", http.StatusUnauthorized)
	if _, is := errors.AsType[*LoginError](err); !is && err != nil {
		return err
	}
	_, err = c.BeginLogin(context.Background(), redirectURI)
	return err
}

func TestMetadataOfTheResourceIsFoundByChallengeThenPathThenRoot(t *testing.T) {
	const custom = "https://mcp.example/custom.json"
	prm := map[string]any{"resource": serverURL, "authorization_servers": []string{issuerURL}}
	for name, test := range map[string]struct {
		challenge string
		at        string // where the metadata is
		want      []string
	}{
		"challenge": {`Bearer resource_metadata="` + custom + `"`, custom, []string{custom}},
		"path":      {"Bearer", "https://mcp.example" + pathPRM, []string{"https://mcp.example" + pathPRM}},
		"root": {"", "https://mcp.example" + rootPRM,
			[]string{"https://mcp.example" + pathPRM, "https://mcp.example" + rootPRM}},
		"challenge that leads nowhere": {`Bearer resource_metadata="` + custom + `"`,
			"https://mcp.example" + rootPRM, []string{custom, "https://mcp.example" + pathPRM,
				"https://mcp.example" + rootPRM}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			delete(w.documents, "https://mcp.example"+pathPRM)
			w.challenge, w.documents[test.at] = test.challenge, prm
			c := w.client(t, Options{})
			w.logIn(t, c)
			for i, at := range test.want {
				if w.requests[i] != "GET "+at {
					t.Errorf("request %d is %s, want %s", i, w.requests[i], at)
				}
			}
		})
	}
}

func TestMetadataOfTheAuthorizationServerIsFoundInThePrescribedOrder(t *testing.T) {
	for issuer, want := range map[string][]string{
		issuerURL: {issuerURL + oauthMeta, issuerURL + oidcMeta},
		issuerURL + "/tenant/1": {issuerURL + oauthMeta + "/tenant/1", issuerURL + oidcMeta + "/tenant/1",
			issuerURL + "/tenant/1" + oidcMeta},
	} {
		for last := range want {
			w := newWorld()
			delete(w.documents, issuerURL+oauthMeta)
			w.metadata["issuer"] = issuer
			w.documents[want[last]] = w.metadata
			w.documents["https://mcp.example"+pathPRM] = map[string]any{"resource": serverURL,
				"authorization_servers": []string{issuer}}
			w.logIn(t, w.client(t, Options{}))
			got := w.requests[1 : last+2]
			for i, at := range want[:last+1] {
				if got[i] != "GET "+at {
					t.Errorf("issuer %s: request %d is %s, want %s", issuer, i, got[i], at)
				}
			}
		}
	}
}

// Some servers respond to any path with an HTML page.
func TestPageInsteadOfMetadataIsNoMetadata(t *testing.T) {
	w := newWorld()
	w.documents[issuerURL+oidcMeta] = w.metadata
	w.handlers[issuerURL+oauthMeta] = func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "<!doctype html>")
	}
	w.logIn(t, w.client(t, Options{}))
}

func TestServerWithoutMetadataUsesThatAtItsRoot(t *testing.T) {
	w := newWorld()
	delete(w.documents, "https://mcp.example"+pathPRM)
	metadata := map[string]any{}
	for key, value := range w.metadata {
		metadata[key] = value
	}
	metadata["issuer"] = "https://mcp.example"
	w.documents["https://mcp.example"+oauthMeta] = metadata
	c := w.client(t, Options{})
	w.logIn(t, c)
	if form, _ := w.lastForm(t, issuerURL+"/token"); form.Get("resource") != serverURL {
		t.Errorf("resource is %q", form.Get("resource"))
	}
}

// Without any metadata, a server with the challenge Bearer may have the endpoints of MCP
// 2025-03-26, but it is not said to need a login, because it may only want a token in its headers.
func TestServerWithoutAnyMetadata(t *testing.T) {
	w := newWorld()
	w.documents, w.challenge = map[string]any{}, "Bearer"
	c := w.client(t, Options{})
	if again, err := w.refused(c, "", http.StatusUnauthorized); again || err != nil {
		t.Errorf("refused: %v, %v", again, err)
	}
	_, err := c.BeginLogin(context.Background(), redirectURI)
	hasAll(t, err, `"https://mcp.example" does not register the gateway`)
	if w.requestsTo("POST", "https://mcp.example/register") != 1 {
		t.Errorf("requests: %q", w.requests)
	}
	w.challenge = ""
	if again, err := w.refused(c, "", http.StatusUnauthorized); again || err != nil {
		t.Errorf("refused: %v, %v", again, err)
	}
	if _, err := c.BeginLogin(context.Background(), redirectURI); err != errNotOAuth {
		t.Error(err)
	}
}

func TestStatusThatIsNotAboutOAuth(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	if again, err := w.refused(c, "", http.StatusForbidden); again || err != nil {
		t.Errorf("403 without insufficient_scope: %v, %v", again, err)
	}
	if again, err := w.refused(c, "", http.StatusNotFound); again || err != nil {
		t.Errorf("404: %v, %v", again, err)
	}
	if len(w.requests) != 0 {
		t.Errorf("requests: %q", w.requests)
	}
}

func TestResourceMustNameTheServer(t *testing.T) {
	for resource, ok := range map[string]bool{
		serverURL: true, "https://mcp.example": true, "https://mcp.example/": true,
		"https://mcp.example/a": true, "https://MCP.example:443/a/mcp/": true,
		"https://mcp.example/a/m": false, "https://mcp.example/a/mcp/b": false,
		"https://evil.example/a/mcp": false, "http://mcp.example/a/mcp": false,
		"https://mcp.example/a/mcp?x": false, "": false,
	} {
		w := newWorld()
		w.documents["https://mcp.example"+pathPRM].(map[string]any)["resource"] = resource
		err := begins(w, w.client(t, Options{}))
		if ok && err != nil {
			t.Errorf("%s: %v", resource, err)
		} else if !ok {
			hasAll(t, err, "is that of another resource")
		}
	}
}

func TestIssuerMustMatchExactly(t *testing.T) {
	w := newWorld()
	w.metadata["issuer"] = issuerURL + "/"
	hasAll(t, begins(w, w.client(t, Options{})), `the issuer is "https://as.example/"`)
	if n := w.requestsTo("POST", issuerURL+"/register"); n != 0 {
		t.Errorf("%d registrations", n)
	}
}

func TestServerWithoutPKCEIsRefused(t *testing.T) {
	for _, methods := range [][]string{nil, {"plain"}} {
		w := newWorld()
		w.metadata["code_challenge_methods_supported"] = methods
		hasAll(t, begins(w, w.client(t, Options{})), "S256", "PKCE")
	}
}

// Metadata from a server must not lead the gateway to addresses that only the gateway can reach.
func TestMetadataAtPrivateAddressesIsRefused(t *testing.T) {
	for _, at := range []string{
		"https://127.0.0.1/x", "https://10.0.0.1/x", "https://169.254.169.254/x", "https://[::1]/x",
		"https://[fe80::1]/x", "https://[fd00::1]/x", "https://[::ffff:10.0.0.1]/x",
		"https://100.64.0.1/x", "https://0.0.0.0/x", "https://localhost/x", "https://a.localhost/x",
		"https://[64:ff9b::a00:1]/x", "http://public.example/x", "file:///etc/passwd",
	} {
		w := newWorld()
		w.challenge = `Bearer resource_metadata="` + at + `"`
		c := w.client(t, Options{})
		_, err := w.refused(c, "", http.StatusUnauthorized)
		if _, is := errors.AsType[*LoginError](err); err == nil || is {
			t.Errorf("%s: %v", at, err)
		}
		if len(w.requests) != 0 {
			t.Errorf("%s: requests %q", at, w.requests)
		}
		if strings.HasPrefix(at, "file:") {
			continue
		}
		hasAll(t, err, "allow_private")
		w = newWorld()
		w.documents[at] = w.documents["https://mcp.example"+pathPRM]
		w.challenge = `Bearer resource_metadata="` + at + `"`
		w.logIn(t, w.client(t, Options{AllowPrivate: true}))
	}
}

// The address is checked when the connection is opened: a public name may have a private address.
func TestDialIsCheckedAfterTheNameIsResolved(t *testing.T) {
	for address, ok := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true,
		"127.0.0.1:443": false, "10.1.2.3:443": false, "169.254.169.254:80": false,
		"[::1]:443": false, "[fe80::1%eth0]:443": false, "224.0.0.1:443": false, "x:443": false,
	} {
		if err := checkDial("tcp", address, nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestEndpointsAtPrivateAddressesAreRefused(t *testing.T) {
	for _, key := range []string{"authorization_endpoint", "registration_endpoint"} {
		w := newWorld()
		w.metadata[key] = "https://192.168.0.1/x"
		hasAll(t, begins(w, w.client(t, Options{})), "allow_private")
	}
	w := newWorld()
	w.metadata["token_endpoint"] = "https://169.254.169.254/token"
	c := w.client(t, Options{})
	l := begin(t, c)
	hasAll(t, l.Finish(context.Background(), w.approve(t, l)), "allow_private")
	w = newWorld()
	w.metadata["revocation_endpoint"] = "http://10.0.0.1/revoke"
	c = w.client(t, Options{})
	w.logIn(t, c)
	_, revokeErr, err := c.Logout(context.Background())
	hasAll(t, revokeErr, "allow_private")
	if err != nil || w.requestsTo("POST", "http://10.0.0.1/revoke") != 0 {
		t.Errorf("%v, requests %q", err, w.requests)
	}
	w = newWorld()
	w.metadata["authorization_endpoint"] = "javascript:alert(1)"
	hasAll(t, begins(w, w.client(t, Options{})), "authorization_endpoint is not an http or https URL")
}

// The user has configured the origin of the backend, so metadata there is allowed.
func TestMetadataAtTheOriginOfTheBackendIsAllowed(t *testing.T) {
	w := newWorld()
	const own = "http://127.0.0.1:8080"
	w.challenge = ""
	w.documents[own+"/.well-known/oauth-protected-resource/mcp"] = map[string]any{
		"resource": own + "/mcp", "authorization_servers": []string{issuerURL}}
	w.logIn(t, w.client(t, Options{URL: own + "/mcp"}))
}

func TestMetadataThatRedirectsIsRefused(t *testing.T) {
	w := newWorld()
	w.handlers["https://mcp.example"+pathPRM] = func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://mcp.example"+rootPRM, http.StatusFound)
	}
	hasAll(t, begins(w, w.client(t, Options{})), "redirects are not followed")
	if !slices.Equal(w.requests, []string{"GET https://mcp.example" + pathPRM}) {
		t.Errorf("requests: %q", w.requests)
	}
}

// A redirect would send the code, the refresh token or the client secret to another server.
func TestEndpointThatRedirectsGetsNothingSentAgain(t *testing.T) {
	const other = "https://evil.example/x"
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		redirect := func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, other, status)
		}
		w := newWorld()
		w.handlers[issuerURL+"/register"] = redirect
		hasAll(t, begins(w, w.client(t, Options{})), "redirects are not followed")

		w.handlers[issuerURL+"/register"] = nil
		c := w.client(t, Options{})
		w.logIn(t, c)
		w.handlers[issuerURL+"/token"] = redirect
		l := begin(t, c)
		hasAll(t, l.Finish(context.Background(), w.approve(t, l)), "redirects are not followed")
		_, err := w.refused(c, token(t, c), http.StatusUnauthorized)
		hasAll(t, err, "redirects are not followed")
		w.handlers[issuerURL+"/revoke"] = redirect
		_, revokeErr, err := c.Logout(context.Background())
		if hasAll(t, revokeErr, "redirects are not followed"); err != nil {
			t.Error(err)
		}
		for _, r := range w.requests {
			if strings.Contains(r, "evil") {
				t.Errorf("sent %s", r)
			}
		}
	}
}

func TestResponseOfTenMegabytesOrWithoutEndIsRefused(t *testing.T) {
	for name, size := range map[string]int{"10 MB": 10 << 20, "endless": 1 << 40} {
		w := newWorld()
		var written atomic.Int64
		long := func(rw http.ResponseWriter, _ *http.Request) { writeSpaces(rw, size, &written) }
		w.handlers[issuerURL+"/register"] = long
		err := begins(w, w.client(t, Options{}))
		hasAll(t, err, "does not register the gateway", "longer than 1024 KiB")
		w.handlers[issuerURL+"/register"] = nil
		c := w.client(t, Options{})
		w.logIn(t, c)
		w.handlers[issuerURL+"/token"] = long
		l := begin(t, c)
		err = l.Finish(context.Background(), w.approve(t, l))
		hasAll(t, err, "gives no token for the code", "longer than 1024 KiB")
		_, err = w.refused(c, token(t, c), http.StatusUnauthorized)
		hasAll(t, err, "refresh the access token", "longer than 1024 KiB")
		if n := written.Load(); n > 6<<20 {
			t.Errorf("%s: %d bytes were read", name, n)
		}
	}
}

// writeSpaces writes spaces until the reader has enough, and adds their number to written.
func writeSpaces(rw http.ResponseWriter, size int, written *atomic.Int64) {
	rw.Header().Set("Content-Type", "application/json")
	part := []byte(strings.Repeat(" ", 1<<16))
	for range size / len(part) {
		n, err := rw.Write(part)
		if written.Add(int64(n)); err != nil {
			return
		}
	}
}

func TestMetadataOfTenMegabytesOrWithoutEndIsRefused(t *testing.T) {
	for name, size := range map[string]int{"10 MB": 10 << 20, "endless": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			var written atomic.Int64
			w.handlers[issuerURL+oauthMeta] = func(rw http.ResponseWriter, _ *http.Request) {
				writeSpaces(rw, size, &written)
			}
			hasAll(t, begins(w, w.client(t, Options{})), "longer than 1024 KiB")
			if n := written.Load(); n > 2<<20 {
				t.Errorf("%d bytes were read", n)
			}
		})
	}
}

func TestAuthorizationServerThatNeverAnswers(t *testing.T) {
	for _, at := range []string{"https://mcp.example" + pathPRM, issuerURL + oauthMeta,
		issuerURL + "/register", issuerURL + "/token"} {
		for _, begun := range []bool{false, true} { // the response begins, and does not end
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.handlers[at] = func(rw http.ResponseWriter, r *http.Request) {
					if begun {
						rw.WriteHeader(http.StatusOK)
					}
					<-r.Context().Done()
				}
				c := w.client(t, Options{})
				start := time.Now()
				err := begins(w, c)
				if err == nil {
					l := begin(t, c)
					err = l.Finish(context.Background(), w.approve(t, l))
				}
				hasAll(t, err, "no answer within 10s")
				if took := time.Since(start); took > 4*requestTimeout {
					t.Errorf("%s: took %v", at, took)
				}
			})
		}
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer resource_metadata="https://a.example/x", scope="a b"`)
	f.Add(`Negotiate abc=, Bearer error="insufficient_scope"`)
	f.Add(`Basic realm="", bearer`)
	f.Fuzz(func(t *testing.T, header string) {
		ch := readChallenge(&http.Response{Header: http.Header{"Www-Authenticate": {header}}})
		if !ch.isBearer && (ch.code != "" || ch.metadataURL != "" || len(ch.scopes) > 0) ||
			len(ch.scopes) > maxScopes {
			t.Errorf("%+v", ch)
		}
	})
}

func TestChallengeBesideOthersIsFound(t *testing.T) {
	const bearer = `Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x.example/"`
	for _, headers := range [][]string{
		{bearer}, {"Basic realm=\"x\"", bearer}, {"Negotiate abc=, " + bearer},
		{"Negotiate, " + bearer}, {strings.ToLower(bearer)}, {`Bearer realm="", ` + bearer[7:]},
	} {
		ch := readChallenge(&http.Response{Header: http.Header{"Www-Authenticate": headers}})
		if !ch.isBearer || ch.code != "insufficient_scope" || ch.metadataURL != "https://x.example/" ||
			!slices.Equal(ch.scopes, []string{"a", "b"}) {
			t.Errorf("%q: %+v", headers, ch)
		}
	}
}

func TestScopesAreBounded(t *testing.T) {
	w := newWorld()
	var many []string
	for i := range 2 * maxScopes {
		many = append(many, fmt.Sprint("s", i))
	}
	w.documents["https://mcp.example"+pathPRM].(map[string]any)["scopes_supported"] = many
	c := w.client(t, Options{})
	for _, challenge := range []string{"Bearer", `Bearer scope="` + strings.Join(many, " ") + `"`} {
		w.challenge = challenge
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		if l := begin(t, c); len(l.Scopes) != maxScopes {
			t.Errorf("%d scopes", len(l.Scopes))
		}
	}
	long := splitScopes(strings.Repeat(strings.Repeat("s", 99)+" ", 100))
	if len(long) != maxScopesLength/100 {
		t.Errorf("%d scopes of 100 bytes", len(long))
	}
}

func TestTextsOfServersAreCut(t *testing.T) {
	w := newWorld()
	long := strings.Repeat("long\n", 10000)
	w.metadata["issuer"] = "https://evil.example/" + long
	err := begins(w, w.client(t, Options{}))
	hasAll(t, err, "the issuer is")
	refused := &responseError{code: long, description: long}
	w.challenge = `Bearer error="insufficient_scope", scope="` + strings.Repeat("s ", 2000) + `"`
	c := w.client(t, Options{})
	_, scopes := w.refused(c, "", http.StatusForbidden)
	_ = c.save(&Grant{Issuer: issuerURL, Secrets: GrantSecrets{Access: "a"}})
	_, missing := w.refused(c, "a", http.StatusForbidden)
	hasAll(t, missing, "missing scopes")
	for _, text := range []string{err.Error(), refused.Error(), scopes.Error(), missing.Error()} {
		if len(text) > 4*maxShown || strings.Contains(text, "\n") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}
