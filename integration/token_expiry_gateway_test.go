//go:build unix

package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
)

// An expiryLoad calls the tool read all the time, from several clients, each time with another id.
type expiryLoad struct {
	t      testing.TB
	server protected
	ids    atomic.Int64 // last id
	ended  atomic.Int64 // calls that have ended
	stop   context.CancelFunc
	done   sync.WaitGroup
}

const expiryCallers = 32

// startExpiryLoad starts a caller for each client.
func startExpiryLoad(t testing.TB, p protected, clients []caller) *expiryLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &expiryLoad{t: t, server: p, stop: cancel}
	t.Cleanup(cancel)
	for _, c := range clients {
		l.done.Go(func() {
			for ctx.Err() == nil {
				id := itoa(l.ids.Add(1))
				if m := callTool(c, "read", `{"id":"`+id+`"}`); !strings.Contains(
					string(m.Result), `\"id\":\"`+id+`\"`) {
					t.Errorf("call %s: %s", id, m.Raw)
					return
				}
				l.ended.Add(1)
			}
		})
	}
	return l
}

// awaitMore waits until n more calls have ended.
func (l *expiryLoad) awaitMore(n int64) {
	l.t.Helper()
	want := l.ended.Load() + n
	if !poll(waitTimeout, func() bool { return l.ended.Load() >= want || l.t.Failed() }) {
		l.t.Fatalf("%d calls have ended, want %d", l.ended.Load(), want)
	}
}

// check ends the load, and checks that each call ran once.
func (l *expiryLoad) check() {
	l.t.Helper()
	l.stop()
	l.done.Wait()
	ran := map[string]int{}
	for _, c := range l.server.Calls() {
		ran[c.ID]++
	}
	for i := range l.ids.Load() {
		if id := itoa(i + 1); ran[id] != 1 {
			l.t.Errorf("call %s ran %d times", id, ran[id])
		}
	}
	l.t.Logf("%d calls", l.ended.Load())
}

// cutStreams ends each standalone stream soon, and, if posts is set, the stream of each call before
// its response. The client then opens them again, or resumes them.
func cutStreams(posts bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			isCall := posts && r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") != ""
			switch {
			case r.Method == http.MethodGet:
				ctx, cancel := context.WithTimeout(r.Context(), 150*time.Millisecond)
				defer cancel()
				r = r.WithContext(ctx)
			case isCall:
				ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
				defer cancel()
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// TestAccessTokenExpiresUnderLoad: the access token of one backend expires under the load of 32
// callers, several times. Each time there is exactly one refresh, and no call is lost or runs
// twice.
func TestAccessTokenExpiresUnderLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		server   oidctest.ServerOptions
		slow     time.Duration // of the token endpoint
		expiries int
	}{
		"modern":               {oidctest.ServerOptions{}, 0, 10},
		"legacy":               {oidctest.ServerOptions{Sessions: true}, 0, 10},
		"HTTP+SSE":             {oidctest.ServerOptions{HTTPSSE: true}, 0, 5},
		"modern, slow refresh": {oidctest.ServerOptions{}, time.Second, 4},
		"legacy, slow refresh": {oidctest.ServerOptions{Sessions: true}, time.Second, 3},
		"legacy, streams end": {
			oidctest.ServerOptions{Sessions: true, Wrap: cutStreams(false)},
			300 * time.Millisecond, 5,
		},
		"legacy, streams are resumed": {
			oidctest.ServerOptions{Sessions: true, Resumable: true, Delay: 30 * time.Millisecond,
				Wrap: cutStreams(true)},
			300 * time.Millisecond, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t, oidctest.Options{Opaque: true}, test.server)
			s := newSetup(t, nil, p.backend("notes"))
			s.logIn("notes")
			_, url := s.serveHTTP()
			clients := make([]caller, expiryCallers)
			for i := range clients {
				if i%2 == 0 {
					clients[i] = newRawModern(t, url, `{}`)
				} else {
					clients[i] = dialHTTP(t, url, "2025-11-25")
				}
			}
			awaitCalls(t, clients[0], "read", `{}`)
			before := p.provider.Refreshes()
			p.provider.SetFault(oidctest.TokenEndpoint, oidctest.Fault{Delay: test.slow})
			load := startExpiryLoad(t, p, clients)
			load.awaitMore(expiryCallers)
			for i := range test.expiries {
				refused := p.Refused(http.StatusUnauthorized)
				p.provider.ExpireAccessTokens()
				if !poll(waitTimeout, func() bool {
					return p.Refused(http.StatusUnauthorized) > refused
				}) {
					t.Fatal("no request was refused")
				}
				load.awaitMore(2 * expiryCallers)
				if got := p.provider.Refreshes() - before; got != i+1 {
					t.Errorf("%d refreshes after %d expiries", got, i+1)
				}
			}
			load.check()
			if n := p.provider.Reuses(); n != 0 {
				t.Errorf("a refresh token was used again %d times", n)
			}
			metadata := p.provider.Counts()[oidctest.OAuthMetadata]
			if most := 2*test.expiries + 10; metadata > most {
				t.Errorf("the metadata was fetched %d times", metadata)
			}
		})
	}
}

// A token that ends is refreshed before: no request is refused, and no call waits for a slow
// authorization server.
func TestAccessTokenIsRefreshedBeforeItExpires_RunningGateway(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{AccessTokenLifetime: 5 * time.Second},
		oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	s.logIn("notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	awaitCalls(t, gw, "read", `{}`)
	refused, before := p.Refused(http.StatusUnauthorized), p.provider.Refreshes()
	p.provider.SetFault(oidctest.TokenEndpoint, oidctest.Fault{Delay: 300 * time.Millisecond})
	var longest time.Duration
	for i := 0; p.provider.Refreshes() < before+2; i++ {
		began := time.Now()
		if m := callTool(gw, "read", fmt.Sprintf(`{"id":"%d"}`, i)); m.Result == nil {
			t.Fatalf("call %d: %s", i, m.Raw)
		}
		longest = max(longest, time.Since(began))
		<-time.After(10 * time.Millisecond)
	}
	if n := p.Refused(http.StatusUnauthorized) - refused; n != 0 {
		t.Errorf("%d requests were refused", n)
	}
	t.Logf("longest call: %v", longest)
}

// While the authorization server is down, calls fail with the reason, and nobody has to log in.
// When it is back, the login is used again.
func TestAuthorizationServerThatIsDown_RunningGateway(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	s.logIn("notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	awaitCalls(t, gw, "read", `{}`)
	down := oidctest.Fault{Status: http.StatusServiceUnavailable}
	for _, e := range []oidctest.Endpoint{oidctest.TokenEndpoint, oidctest.OAuthMetadata} {
		p.provider.SetFault(e, down)
	}
	p.provider.ExpireAccessTokens()
	for i := range 50 {
		m := callTool(gw, "read", `{"id":"down"}`)
		if text := string(m.Error); !strings.Contains(text, "refresh the access token") ||
			!strings.Contains(text, "503") || strings.Contains(text, "gateway login") {
			t.Errorf("call %d: %s", i, m.Raw)
		}
		if m := callTool(gw, "now", `{}`); m.Result == nil {
			t.Errorf("the other backend: %s", m.Raw)
		}
	}
	if n := p.provider.Refreshes(); n > 3 {
		t.Errorf("%d refreshes", n)
	}
	r := s.run("check")
	r.expect(t, 1, "refresh the access token")
	if strings.Contains(r.out, "needs login") {
		t.Errorf("gateway check: %s", r.out)
	}
	p.provider.ClearFaults()
	awaitCalls(t, gw, "read", `{"id":"up"}`)
	s.run("check").expect(t, 0)
	if strings.Contains(gw.logs(), "needs a login") || p.Executions("down") != 0 {
		t.Errorf("%d calls ran; log:\n%s", p.Executions("down"), gw.logs())
	}
}
