package oauthclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// requestsToIssuer returns the number of requests to the authorization server.
func (w *world) requestsToIssuer() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if _, at, _ := strings.Cut(r, " "); strings.HasPrefix(at, issuerURL) {
			n++
		}
	}
	return n
}

// hang makes requests to a URL wait for their end.
func (w *world) hang(at string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers[at] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
}

func TestAuthorizationServerThatNeverAnswersIsAskedOnceForAllCalls(t *testing.T) {
	for _, at := range []string{issuerURL + "/token", issuerURL + oauthMeta} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			c := w.client(t, Options{})
			w.logIn(t, c)
			old, before, began := token(t, c), w.requestsToIssuer(), time.Now()
			w.hang(at)
			if at != issuerURL+"/token" {
				w.hang(issuerURL + "/token")
			}
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() {
					if _, err := w.refused(c, old, http.StatusUnauthorized); err == nil ||
						errors.Is(err, errTooOften) {
						t.Errorf("refused: %v", err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > 2*requestTimeout+time.Second {
				t.Errorf("the calls waited for %v", took)
			}
			if n := w.requestsToIssuer() - before; n > 2 {
				t.Errorf("%d requests to the authorization server", n)
			}
		})
	}
}

func TestFailedAttemptIsNotRepeatedForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.client(t, Options{})
		for range 100 { // nobody has logged in
			_, err := w.refused(c, "", http.StatusUnauthorized)
			hasAll(t, err, "nobody is logged in")
		}
		if n := w.requestsToIssuer(); n != 1 {
			t.Errorf("%d requests to the authorization server", n)
		}
		time.Sleep(failurePause)
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		if n := w.requestsToIssuer(); n != 2 {
			t.Errorf("%d requests to the authorization server after the pause", n)
		}
		// a login ends the pause
		l := begin(t, c)
		if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
			t.Fatal(err)
		}
		if again, err := w.refused(c, "", http.StatusUnauthorized); !again || err != nil {
			t.Errorf("after the login: %v, %v", again, err)
		}
	})
}

func TestServerThatRefusesEachTokenDoesNotCauseAFloodOfRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.client(t, Options{})
		w.logIn(t, c)
		before := w.requestsTo("POST", issuerURL+"/token")
		refuse := func() (refreshes int) {
			for range 200 {
				if _, err := w.refused(c, token(t, c), http.StatusUnauthorized); err != nil {
					t.Fatal(err)
				}
			}
			return w.requestsTo("POST", issuerURL+"/token") - before
		}
		if n := refuse(); n > maxAttempts {
			t.Errorf("%d refreshes", n)
		}
		again, err := w.refused(c, token(t, c), http.StatusUnauthorized)
		if again || err != nil {
			t.Errorf("refused: %v, %v; the response is not used", again, err)
		}
		time.Sleep(10 * attemptInterval)
		if n := refuse(); n > maxAttempts+10 {
			t.Errorf("%d refreshes", n)
		}
	})
}

func TestWaitForATokenEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.client(t, Options{})
		w.logIn(t, c)
		w.hang(issuerURL + "/token")
		ctx, cancel := context.WithCancelCause(t.Context())
		cause, began := errors.New("cancelled by the client"), time.Now()
		time.AfterFunc(time.Second, func() { cancel(cause) })
		resp := &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}}
		_, err := c.Refused(ctx, token(t, c), resp)
		if took := time.Since(began); err != cause || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		time.Sleep(requestTimeout) // the attempt continues
	})
}

func TestEndOfTheGatewayEndsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		c := w.client(t, Options{Go: func(f func(context.Context)) bool {
			if ctx.Err() != nil {
				return false
			}
			running.Go(func() { f(ctx) })
			return true
		}})
		w.logIn(t, c)
		w.hang(issuerURL + "/token")
		old := token(t, c)
		running.Go(func() { _, _ = w.refused(c, old, http.StatusUnauthorized) })
		synctest.Wait()
		began := time.Now()
		cancel()
		running.Wait()
		if took := time.Since(began); took != endGrace {
			t.Errorf("the attempt ended after %v", took)
		}
		time.Sleep(failurePause)
		began = time.Now()
		if _, err := w.refused(c, old, http.StatusUnauthorized); err == nil {
			t.Error("no error")
		}
		if took := time.Since(began); took != endGrace {
			t.Errorf("an attempt without a goroutine ended after %v", took)
		}
	})
}

// The server demands scopes while another gateway replaces the refresh token.
func TestStepUpKeepsTheRefreshTokenOfAnotherProcess(t *testing.T) {
	w := newWorld()
	dir := t.TempDir()
	c := w.client(t, Options{Store: NewStore(dir, nil)})
	w.logIn(t, c)
	old, _ := c.current(true)
	other := w.client(t, Options{Store: NewStore(dir, nil)})
	unlock, err := other.Store.lock(context.Background(), other.key)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { _ = c.stepUp(context.Background(), old, "", challenge{scopes: []string{"x"}}) })
	next := *old
	next.Secrets.Refresh = "replaced"
	if err := other.save(&next); err != nil {
		t.Fatal(err)
	}
	unlock()
	all.Wait()
	g, err := c.Store.load(c.key)
	if err != nil || g.Secrets.Refresh != "replaced" || strings.Join(g.Wanted, " ") != "x" {
		t.Errorf("stored: %+v, %v", g, err)
	}
}

func TestScopesThatDifferentRequestsDemandAreAllRequested(t *testing.T) {
	w := newWorld()
	w.challenge = `Bearer scope="read"`
	c := w.client(t, Options{})
	w.logIn(t, c)
	for _, scope := range []string{"write", "admin", "write"} {
		w.challenge = `Bearer error="insufficient_scope", scope="` + scope + `"`
		_, err := w.refused(c, token(t, c), http.StatusForbidden)
		hasAll(t, err, `"`+scope+`"`)
	}
	u, _ := url.Parse(begin(t, c).URL)
	if got := u.Query().Get("scope"); got != "read admin write" {
		t.Errorf("scope %q", got)
	}
	// a server that demands ever more scopes does not make the stored login grow
	for i := range 100 {
		_, _ = w.refused(c, token(t, c), http.StatusForbidden)
		w.challenge = `Bearer error="insufficient_scope", scope="` +
			strings.Repeat("s"+string(rune('a'+i%26))+strings.Repeat("z", i)+" ", 90) + `"`
	}
	if g, _ := c.current(true); len(g.Wanted) > maxScopes+1 {
		t.Errorf("%d scopes", len(g.Wanted))
	}
}

// A failed step-up must not prevent the refresh of the token that it leaves in force.
func TestFailedStepUpDoesNotPreventARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.challenge = `Bearer scope="read"`
		c := w.client(t, Options{ClientID: "me", ClientSecret: "hidden", ClientCredentials: true})
		_, _ = w.refused(c, "", http.StatusUnauthorized)
		old := token(t, c)
		w.challenge = `Bearer error="insufficient_scope", scope="write"`
		w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, _ *http.Request) {
			respond(rw, http.StatusBadRequest, map[string]any{"error": "invalid_scope"})
		}
		_, err := w.refused(c, old, http.StatusForbidden)
		hasAll(t, err, "invalid_scope")
		delete(w.handlers, issuerURL+"/token")
		if again, err := w.refused(c, old, http.StatusUnauthorized); !again || err != nil {
			t.Errorf("refused: %v, %v", again, err)
		}
	})
}

func TestWrongClientSecretKeepsTheLogin(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{ClientID: "me", ClientSecret: "hidden"})
	w.logIn(t, c)
	w.handlers[issuerURL+"/token"] = func(rw http.ResponseWriter, _ *http.Request) {
		respond(rw, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
	}
	_, err := w.refused(c, token(t, c), http.StatusUnauthorized)
	hasAll(t, err, "client_id or client_secret", "invalid_client")
	if g, _ := c.Store.load(c.key); g == nil || g.Secrets.Refresh == "" || c.NeedsLogin() != nil {
		t.Errorf("stored %+v, needs %v", g, c.NeedsLogin())
	}
}

func TestLoginsInMemoryHaveALockEach(t *testing.T) {
	s := NewStore("", nil)
	unlock, err := s.lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.lock(ended, "a"); err == nil {
		t.Error("the lock is taken twice")
	}
	other, err := s.lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
}

// Somebody logs in while an attempt finds out that a login is needed.
func TestLoginDuringAnAttemptCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var needs []*LoginError
		c := w.client(t, Options{OnNeedsLogin: func(e *LoginError) { needs = append(needs, e) }})
		l := begin(t, c)
		asked, answer := make(chan struct{}), make(chan struct{})
		w.handlers[issuerURL+oauthMeta] = func(rw http.ResponseWriter, _ *http.Request) {
			close(asked)
			<-answer
			respond(rw, http.StatusOK, w.metadata)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if again, err := w.refused(c, "", http.StatusUnauthorized); !again || err != nil {
				t.Errorf("refused: %v, %v", again, err)
			}
		})
		<-asked
		if err := l.Finish(context.Background(), w.approve(t, l)); err != nil {
			t.Fatal(err)
		}
		close(answer)
		all.Wait()
		c.RequireLogin(c.loginError("of an earlier token"))
		if c.NeedsLogin() != nil || len(needs) != 0 {
			t.Errorf("needs %v, noted %v", c.NeedsLogin(), needs)
		}
	})
}

// The lifetime that a server states may be wrong, and too short for any use.
func TestTokensThatExpireAtOnceAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lifetime = -1
		c := w.client(t, Options{})
		w.logIn(t, c)
		for range 10 * maxAttempts {
			if token(t, c) == "" {
				t.Fatal("no token")
			}
		}
		if n := w.requestsTo("POST", issuerURL+"/token"); n > maxAttempts+1 {
			t.Errorf("%d token requests", n)
		}
	})
}

// Metadata that are not available for a moment do not mean another authorization server: the login
// is refreshed.
func TestMissingMetadataAreNotAnotherServer(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	old := token(t, c)
	delete(w.documents, "https://mcp.example"+pathPRM)
	delete(w.documents, issuerURL+oauthMeta)
	if again, err := w.refused(c, old, http.StatusUnauthorized); !again || err != nil {
		t.Fatalf("%v, %v", again, err)
	}
	if token(t, c) == old {
		t.Error("the token is the old one")
	}
}

// A stored grant that changes without a new token, for example when the demanded scopes are noted,
// is not a login.
func TestOnlyANewTokenIsALogin(t *testing.T) {
	w := newWorld()
	c := w.client(t, Options{})
	w.logIn(t, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needs = c.loginError("of a test")
	noted := *c.grant
	noted.Wanted = []string{"more"}
	if c.setLocked(&noted, c.version); c.needs == nil {
		t.Error("the login counts as done")
	}
	next := noted
	next.Secrets.Access = "another-token"
	if c.setLocked(&next, c.version); c.needs != nil {
		t.Error("a new token does not count as a login")
	}
}
