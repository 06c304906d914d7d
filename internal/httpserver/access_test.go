package httpserver

import (
	"testing"
	"testing/synctest"
)

// Remaining tokens keep their sessions and requests, regardless of the order of the tokens.
// Sessions and requests of removed tokens end, and no other token can use them.
func TestUpdateAccessKeepsRemainingTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("alpha", "beta") })
		by := func(token string, tr testRequest) testRequest {
			return tr.withHeader("Authorization", "Bearer "+token)
		}
		echo := func(session string) testRequest {
			return post(session, requestJSON("1", "echo", "{}"))
		}
		alpha, _ := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer alpha"})
		beta, _ := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer beta"})
		held := make(chan string)
		go func() {
			_, body := h.do(by("alpha", statelessRequest("7", "hold", "")))
			held <- body
		}()
		<-h.heldRequests
		stays := make(chan bool)
		go func() {
			h.want(by("beta", post(beta, requestJSON("8", "hold", "{}"))), 200,
				resultJSON("8", "{}"))
			close(stays)
		}()
		call := <-h.heldRequests
		stream := h.openStream(by("alpha", testRequest{method: "GET", session: alpha}))

		h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("gamma", "beta")})
		if body := <-held; body == resultJSON("7", "{}") {
			t.Errorf("request of the removed token alpha was answered: %s", body)
		}
		for _, err := stream.next(); err == nil; _, err = stream.next() {
		}
		call.Reply([]byte("{}"))
		<-stays
		h.want(by("beta", echo(beta)), 200, resultJSON("1", "{}"))
		h.wantError(by("alpha", echo(alpha)), 401, "null", -32600)
		for _, token := range []string{"gamma", "beta"} {
			if res, body := h.do(by(token, echo(alpha))); res.StatusCode != 404 {
				t.Errorf("%s can access alpha's session: %s %s", token, res.Status, body)
			}
		}
		if res, body := h.do(by("gamma", echo(beta))); res.StatusCode != 404 {
			t.Errorf("gamma can access beta's session: %s %s", res.Status, body)
		}
		h.want(by("gamma", statelessRequest("1", "echo", "")), 200, "*")

		h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("alpha", "beta")})
		if res, body := h.do(by("alpha", echo(alpha))); res.StatusCode != 404 {
			t.Errorf("the closed session is open again: %s %s", res.Status, body)
		}
		h.want(by("beta", echo(beta)), 200, resultJSON("1", "{}"))
		synctest.Wait()
		if n := len(h.server.stateless.exchanges); n != 0 {
			t.Errorf("%d stateless exchanges are left", n)
		}
	})
}

// The first tokens are added, and all are removed.
func TestUpdateAccessFirstTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		echo := func(session, token string) testRequest {
			k := post(session, requestJSON("1", "echo", "{}"))
			if token != "" {
				k = k.withHeader("Authorization", "Bearer "+token)
			}
			return k
		}
		noToken, _ := h.initialize("2025-11-25", nil)
		h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("alpha")})
		h.wantError(echo(noToken, ""), 401, "null", -32600)
		if res, body := h.do(echo(noToken, "alpha")); res.StatusCode != 404 {
			t.Errorf("alpha can access a session opened without a token: %s %s", res.Status, body)
		}

		one := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("alpha") })
		alpha, _ := one.initialize("2025-11-25", map[string]string{"Authorization": "Bearer alpha"})
		one.server.UpdateAccess(AccessRules{Tokens: bearerTokens("beta", "alpha")})
		one.want(echo(alpha, "alpha"), 200, resultJSON("1", "{}"))
		if res, body := one.do(echo(alpha, "beta")); res.StatusCode != 404 {
			t.Errorf("beta can access alpha's session: %s %s", res.Status, body)
		}
		one.server.UpdateAccess(AccessRules{Tokens: bearerTokens("beta")})
		one.wantError(echo(alpha, "alpha"), 401, "null", -32600)
		if res, body := one.do(echo(alpha, "beta")); res.StatusCode != 404 {
			t.Errorf("beta, the only token now, can access alpha's session: %s %s", res.Status,
				body)
		}
	})
}

// A request that was checked just before the removal of the profile in its path opens no session.
func TestRemovedProfileOpensNothing(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Tokens, o.Profiles = bearerTokens("alpha", "beta"), []string{"reader"}
	})
	from := sender{Principal: h.server.access.policy.Load().tokens[0].principal, profile: "reader"}
	h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("alpha", "beta")})
	herr := h.server.sessions.open(newSession(&httpExchange{srv: h.server, from: from}, false))
	if herr == nil || herr.status != 404 {
		t.Errorf("open: %+v", herr)
	}
}

// A request that was authenticated just before the removal of its token opens no session or
// exchange.
func TestRemovedTokenOpensNothing(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("alpha", "beta") })
	from := sender{Principal: h.server.access.policy.Load().tokens[0].principal}
	h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("beta")})
	if herr := h.server.sessions.open(newSession(
		&httpExchange{srv: h.server, from: from}, false)); herr == nil ||
		herr.status != 401 {
		t.Errorf("open: %+v", herr)
	}
	if herr := h.server.stateless.add(&statelessExchange{server: h.server,
		from: from}); herr == nil || herr.status != 401 {
		t.Errorf("add: %+v", herr)
	}
}

func TestUpdateAccessHostsAndOrigins(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Loopback, o.Hosts = true, []string{"gw.example"} })
	page := testRequest{body: initializeRequest("2025-11-25"),
		header: map[string]string{"Origin": "https://app.example"}}
	h.want(page, 403, "*")
	h.want(testRequest{body: initializeRequest("2025-11-25"), host: "gw.example"}, 200, "*")
	h.server.UpdateAccess(AccessRules{Origins: []string{"https://app.example"}})
	h.want(page, 200, "*")
	h.want(testRequest{body: initializeRequest("2025-11-25"), host: "gw.example"}, 403, "*")
}
