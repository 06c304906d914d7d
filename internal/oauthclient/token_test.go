package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokenIsRefreshedBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lifetime = 600
		c := w.client(t, Options{})
		w.logIn(t, c)
		first := token(t, c)
		time.Sleep(600*time.Second - maxEarly - time.Second)
		if token(t, c) != first {
			t.Error("refreshed too early")
		}
		time.Sleep(2 * time.Second)
		if token(t, c) != first {
			t.Error("the valid token is not used during the refresh")
		}
		synctest.Wait()
		second := token(t, c)
		if second == first || second == "" {
			t.Error("not refreshed")
		}
		form, _ := w.lastForm(t, issuerURL+"/token")
		if form.Get("grant_type") != "refresh_token" || form.Get("resource") != serverURL {
			t.Errorf("refresh request: %v", form)
		}
		// a short token is refreshed later than a minute before its end
		w.lifetime = 10
		time.Sleep(590 * time.Second)
		token(t, c)
		synctest.Wait()
		third := token(t, c)
		time.Sleep(7 * time.Second)
		if third == second || token(t, c) != third {
			t.Error("a token of 10 s is refreshed too early, or not at all")
		}
		time.Sleep(2 * time.Second)
		token(t, c)
		synctest.Wait()
		if token(t, c) == third {
			t.Error("a token of 10 s is not refreshed")
		}
	})
}

func TestRefusedTokenIsRefreshedOnceForAllCallers(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	old := token(t, c)
	before := w.requestsTo("POST", issuerURL+"/token")
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			again, err := w.refused(c, old, http.StatusUnauthorized)
			if !again || err != nil {
				t.Errorf("refused: %v, %v", again, err)
			}
		})
	}
	all.Wait()
	if n := w.requestsTo("POST", issuerURL+"/token") - before; n != 1 {
		t.Errorf("%d refreshes", n)
	}
	if token(t, c) == old {
		t.Error("the token is the same")
	}
}

// Several gateways share a login whose refresh token is valid once.
func TestSeveralGatewaysDoNotLoseARotatedRefreshToken(t *testing.T) {
	w := newWorld()
	dir := t.TempDir()
	var clients []*Authorization
	for range 4 {
		clients = append(clients, w.client(t, Options{Store: NewStore(dir, nil)}))
	}
	w.logIn(t, clients[0])
	for round := range 10 {
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() {
				old := token(t, c)
				if again, err := w.refused(c, old, http.StatusUnauthorized); !again || err != nil {
					t.Errorf("round %d: %v, %v", round, again, err)
				}
			})
		}
		all.Wait()
	}
	if n := w.requestsTo("POST", issuerURL+"/token"); n > 1+10*len(clients) {
		t.Errorf("%d token requests", n)
	}
	for _, c := range clients {
		if c.NeedsLogin() != nil {
			t.Errorf("needs %v", c.NeedsLogin())
		}
	}
}

func TestRefreshThatIsCancelledIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.client(t, Options{})
		w.logIn(t, c)
		old := token(t, c)
		asked, answer := make(chan struct{}), make(chan struct{})
		w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, r *http.Request) {
			close(asked)
			<-answer
			w.token(rw, w.forms[len(w.forms)-1])
		}
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() {
			resp := &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}}
			_, _ = c.Refused(ctx, old, resp)
		})
		<-asked
		cancel()
		synctest.Wait()
		close(answer)
		done.Wait()
		synctest.Wait()
		if got := token(t, c); got == old {
			t.Error("the rotated refresh token is lost")
		}
	})
}

func TestFailedRefreshKeepsAValidToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lifetime = 600
		c := w.client(t, Options{})
		w.logIn(t, c)
		first := token(t, c)
		w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		time.Sleep(590 * time.Second)
		if token(t, c) != first {
			t.Error("the valid token is not used")
		}
		time.Sleep(20 * time.Second)
		_, err := c.Token(context.Background())
		hasAll(t, err, "refresh the access token", "503")
		if _, is := errors.AsType[*LoginError](err); is || c.NeedsLogin() != nil {
			t.Errorf("an authorization server that is down requires no login: %v", err)
		}
		delete(w.handlers, issuerURL+"/token")
		time.Sleep(failurePause)
		if got := token(t, c); got == "" || got == first {
			t.Errorf("token %q after the authorization server is back", got)
		}
	})
}

func TestEndOfTheLoginNeedsALogin(t *testing.T) {
	w := newWorld()
	var needs []*LoginError
	c := w.client(t, Options{OnNeedsLogin: func(e *LoginError) { needs = append(needs, e) }})
	w.logIn(t, c)
	old := token(t, c)
	clear(w.valid) // the user has ended the login in the account
	_, err := w.refused(c, old, http.StatusUnauthorized)
	hasAll(t, err, "it needs a login", "invalid_grant", "gateway login docs")
	if len(needs) != 2 || c.NeedsLogin() != needs[1] {
		t.Errorf("OnNeedsLogin: %v", needs)
	}
	registrations := w.requestsTo("POST", issuerURL+"/register")
	w.logIn2(t, c)
	if c.NeedsLogin() != nil || token(t, c) == "" {
		t.Error("the second login has no effect")
	}
	if n := w.requestsTo("POST", issuerURL+"/register"); n != registrations {
		t.Errorf("%d registrations", n)
	}
}

func TestLoginWithoutRefreshToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.refresh, w.lifetime = false, 600
		c := w.client(t, Options{})
		w.logIn(t, c)
		old := token(t, c)
		time.Sleep(time.Hour)
		if token(t, c) != old { // the server decides
			t.Error("another token")
		}
		_, err := w.refused(c, old, http.StatusUnauthorized)
		hasAll(t, err, "the login has expired", "gateway login docs")
	})
}

func TestChangedAuthorizationServerNeedsANewLoginAndNewCredentials(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	old := token(t, c)
	const second = "https://as2.example"
	metadata := map[string]any{}
	for key, value := range w.metadata {
		if text, is := value.(string); is {
			value = strings.Replace(text, issuerURL, second, 1)
		}
		metadata[key] = value
	}
	w.documents[second+oauthMeta] = metadata
	w.documents[second+"/register"] = map[string]any{"client_id": "second-client"}
	w.documents[second+"/token"] = map[string]any{"access_token": "second-token", "token_type": "Bearer"}
	w.documents["https://mcp.example"+pathPRM].(map[string]any)["authorization_servers"] =
		[]string{second}
	tokenRequests := w.requestsTo("POST", issuerURL+"/token")
	_, err := w.refused(c, old, http.StatusUnauthorized)
	hasAll(t, err, "it needs a login", "changed its authorization server", second)
	if n := w.requestsTo("POST", issuerURL+"/token"); n != tokenRequests {
		t.Error("the refresh token was sent")
	}
	l := begin(t, c)
	if u, _ := url.Parse(l.URL); u.Query().Get("client_id") != "second-client" {
		t.Errorf("authorization request: %s", l.URL)
	}
	if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
		t.Fatal(err)
	}
	form, _ := w.lastForm(t, second+"/token")
	w.hidesOld(t, fmt.Sprint(form), "client-")
	if got := token(t, c); got != "second-token" {
		t.Errorf("token %q", got)
	}
}

func (w *world) hidesOld(t testing.TB, text, old string) {
	t.Helper()
	if strings.Contains(strings.ReplaceAll(text, "second-client", ""), old) {
		t.Errorf("%s contains %q", text, old)
	}
}

func TestClientCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.metadata["token_endpoint_auth_methods_supported"] = nil
		delete(w.metadata, "authorization_endpoint")
		delete(w.metadata, "code_challenge_methods_supported")
		w.challenge = `Bearer scope="a"`
		c := w.client(t, Options{ClientID: "me", ClientSecret: "hidden",
			ClientCredentials: true})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if again, err := w.refused(c, "", http.StatusUnauthorized); !again || err != nil {
					t.Errorf("refused: %v, %v", again, err)
				}
			})
		}
		all.Wait()
		form, header := w.lastForm(t, issuerURL+"/token")
		if form.Get("grant_type") != "client_credentials" || form.Get("resource") != serverURL ||
			form.Get("scope") != "a" || !strings.HasPrefix(header.Get("Authorization"), "Basic ") {
			t.Errorf("token request: %v, %v", form, header)
		}
		if n := w.requestsTo("POST", issuerURL+"/token"); n != 1 {
			t.Errorf("%d token requests", n)
		}
		first := token(t, c)
		time.Sleep(time.Hour - 30*time.Second)
		token(t, c)
		synctest.Wait()
		if second := token(t, c); second == first || second == "" {
			t.Errorf("token %q", second)
		}
		if form, _ = w.lastForm(t, issuerURL+"/token"); form.Get("scope") != "a" {
			t.Errorf("refresh request: %v", form)
		}
		if g, err := c.Store.load(c.key); g != nil || err != nil {
			t.Errorf("stored: %v, %v", g, err)
		}
		if _, err := c.BeginLogin(context.Background(), redirectURI); err == nil {
			t.Error("a login began")
		}
	})
}

func TestClientCredentialsThatAreRefused(t *testing.T) {
	w := newWorld()
	w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, _ *http.Request) {
		respond(rw, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
	}
	c := w.client(t, Options{ClientID: "me", ClientSecret: "hidden",
		ClientCredentials: true})
	again, err := w.refused(c, "", http.StatusUnauthorized)
	hasAll(t, err, "gives the client no token", "invalid_client")
	if again || c.NeedsLogin() != nil {
		t.Errorf("again %v, needs %v", again, c.NeedsLogin())
	}
}

func TestStepUpRequestsTheUnionOfTheScopes(t *testing.T) {
	w := newWorld()
	w.challenge = `Bearer scope="read"`
	c := w.client(t, Options{})
	w.logIn(t, c)
	old := token(t, c)
	w.challenge = `Bearer error="insufficient_scope", scope="write"`
	again, err := w.refused(c, old, http.StatusForbidden)
	login, is := errors.AsType[*LoginError](err)
	if again || !is || len(login.Scopes) != 1 {
		t.Fatalf("refused: %v, %v", again, err)
	}
	hasAll(t, err, "more rights", `"write"`, "gateway login docs")
	if c.NeedsLogin() != nil || token(t, c) != old {
		t.Error("other requests are affected")
	}
	if !c.WantsLogin() {
		t.Error("a login is not useful")
	}
	// in another process, which has not seen the challenge
	other := w.client(t, Options{Store: c.Store})
	l := begin(t, other)
	if u, _ := url.Parse(l.URL); u.Query().Get("scope") != "read write" {
		t.Errorf("authorization request: %s", l.URL)
	}
	if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
		t.Fatal(err)
	}
	if again, err := w.refused(c, old, http.StatusForbidden); !again || err != nil {
		t.Errorf("after the login: %v, %v", again, err)
	}
	if c.WantsLogin() {
		t.Error("another login is wanted")
	}
}

func TestStepUpGivesUpIfTheScopesWereGranted(t *testing.T) {
	w := newWorld()
	w.challenge = `Bearer scope="admin"`
	c := w.client(t, Options{})
	w.logIn(t, c)
	w.challenge = `Bearer error="insufficient_scope", scope="admin"`
	_, err := w.refused(c, token(t, c), http.StatusForbidden)
	hasAll(t, err, `refuses the granted scopes "admin"`)
	if _, is := errors.AsType[*LoginError](err); is {
		t.Error("a login is suggested")
	}
}

func TestStepUpOfAClientWithCredentials(t *testing.T) {
	w := newWorld()
	w.challenge = `Bearer scope="read"`
	c := w.client(t, Options{ClientID: "me", ClientSecret: "hidden",
		ClientCredentials: true})
	_, _ = w.refused(c, "", http.StatusUnauthorized)
	w.challenge = `Bearer error="insufficient_scope", scope="write"`
	if again, err := w.refused(c, token(t, c), http.StatusForbidden); !again || err != nil {
		t.Fatal(again, err)
	}
	if form, _ := w.lastForm(t, issuerURL+"/token"); form.Get("scope") != "read write" {
		t.Errorf("token request: %v", form)
	}
	if _, err := w.refused(c, token(t, c), http.StatusForbidden); err == nil {
		t.Error("another token is requested for granted scopes")
	}
}

func TestLoginOfAnotherProcessIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		c := w.client(t, Options{Store: NewStore(dir, nil)})
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		waited := make(chan error, 1)
		go func() { waited <- c.AwaitLogin(t.Context()) }()
		time.Sleep(10 * time.Second)
		w.logIn(t, w.client(t, Options{Store: NewStore(dir, nil)}))
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		if token(t, c) == "" || c.NeedsLogin() != nil {
			t.Error("the login has no effect")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.needs = c.loginError("test")
		if err := c.AwaitLogin(ctx); err != context.Canceled {
			t.Error(err)
		}
	})
}

func TestLogoutOfAnotherProcessIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		c := w.client(t, Options{Store: NewStore(dir, nil)})
		other := w.client(t, Options{Store: NewStore(dir, nil)})
		w.logIn(t, c)
		if _, _, err := other.Logout(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(storeInterval)
		if got := token(t, c); got != "" {
			t.Errorf("token %q", got)
		}
	})
}

func TestLogoutOfAnotherProcessIsNoticedWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		c := w.client(t, Options{Store: NewStore(dir, nil)})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { ended <- c.AwaitLogout(ctx) }()
		other := w.client(t, Options{Store: NewStore(dir, nil)})
		for range 2 { // a login that this process has not used is not awaited
			w.logIn(t, other)
			if _, _, err := other.Logout(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		w.logIn(t, c)
		clear(w.valid)
		_, err := w.refused(c, token(t, c), http.StatusUnauthorized)
		hasAll(t, err, "invalid_grant") // ends the login, but is no logout
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("no logout: %v", err)
		default:
		}
		if _, _, err := other.Logout(ctx); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > logoutInterval {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		cause := errors.New("removed")
		cancel(cause)
		if err := c.AwaitLogout(ctx); err != cause {
			t.Error(err)
		}
	})
}

// A callback may call the Authorization.
func TestCallbacksRunWithoutTheLock(t *testing.T) {
	w := newWorld()
	dir := t.TempDir()
	calls := map[string]int{}
	for _, store := range []*Store{NewStore(dir, nil), NewStore(dir, nil)} {
		var c *Authorization
		check := func(which string) {
			calls[which]++
			if !c.mu.TryLock() {
				t.Errorf("%s runs with the lock", which)
				return
			}
			c.mu.Unlock()
		}
		c = w.client(t, Options{Store: store, OnSecret: func(string) { check("OnSecret") },
			OnNeedsLogin: func(*LoginError) { check("OnNeedsLogin") }})
		if calls["OnSecret"] == 0 { // the second one reads the login of the first
			w.logIn(t, c)
		}
		if again, err := w.refused(c, token(t, c), http.StatusUnauthorized); !again {
			t.Error(err)
		}
	}
	if calls["OnSecret"] < 10 || calls["OnNeedsLogin"] == 0 {
		t.Errorf("calls: %v", calls)
	}
}

// A login belongs to the client with which it was made.
func TestLoginOfAClientThatIsNoLongerConfigured(t *testing.T) {
	w := newWorld()
	dir := t.TempDir()
	w.logIn(t, w.client(t, Options{Store: NewStore(dir, nil)}))
	c := w.client(t, Options{Store: NewStore(dir, nil), ClientID: "mine"})
	if got := token(t, c); got != "" {
		t.Errorf("token %q", got)
	}
}
