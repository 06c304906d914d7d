package httpserver

import (
	"testing"
	"testing/synctest"
)

// Tokens that are still there keep what they have, in whatever place they stand; what was of a token
// that is gone ends, and nobody else's token opens it.
func TestTokensAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.Tokens = []string{"alpha", "beta"} })
		by := func(token string, v knock) knock { return v.with("Authorization", "Bearer "+token) }
		echo := func(session string) knock { return knock{session: session, body: call("1", "echo", "{}")} }
		alpha, _ := h.enter("2025-11-25", map[string]string{"Authorization": "Bearer alpha"})
		beta, _ := h.enter("2025-11-25", map[string]string{"Authorization": "Bearer beta"})
		held := make(chan string)
		go func() {
			_, body := h.ask(by("alpha", lone("7", "hold", "")))
			held <- body
		}()
		<-h.held
		stays := make(chan bool)
		go func() {
			h.want(by("beta", knock{session: beta, body: call("8", "hold", "{}")}), 200, result("8", "{}"))
			close(stays)
		}()
		call := <-h.held
		stream := h.stream(by("alpha", knock{verb: "GET", session: alpha}))

		h.door.UpdateAccess([]string{"gamma", "beta"}, nil, nil)
		if body := <-held; body == result("7", "{}") {
			t.Errorf("what alpha asked is answered: %s", body)
		}
		for _, err := stream.next(); err == nil; _, err = stream.next() {
		}
		call.Reply([]byte("{}"))
		<-stays
		h.want(by("beta", echo(beta)), 200, result("1", "{}"))
		h.wantError(by("alpha", echo(alpha)), 401, "null", -32600)
		for _, token := range []string{"gamma", "beta"} {
			if res, body := h.ask(by(token, echo(alpha))); res.StatusCode != 404 {
				t.Errorf("%s finds alpha's session: %s %s", token, res.Status, body)
			}
		}
		if res, body := h.ask(by("gamma", echo(beta))); res.StatusCode != 404 {
			t.Errorf("gamma finds beta's session: %s %s", res.Status, body)
		}
		h.want(by("gamma", lone("1", "echo", "")), 200, "*")

		h.door.UpdateAccess([]string{"alpha", "beta"}, nil, nil)
		if res, body := h.ask(by("alpha", echo(alpha))); res.StatusCode != 404 {
			t.Errorf("what has ended is there again: %s %s", res.Status, body)
		}
		h.want(by("beta", echo(beta)), 200, result("1", "{}"))
		synctest.Wait()
		if n := len(h.door.visiting); n != 0 {
			t.Errorf("%d visits are left", n)
		}
	})
}

// From one token, or none, to others.
func TestTheFirstTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		echo := func(session, token string) knock {
			k := knock{session: session, body: call("1", "echo", "{}")}
			if token != "" {
				k = k.with("Authorization", "Bearer "+token)
			}
			return k
		}
		nobody, _ := h.enter("2025-11-25", nil)
		h.door.UpdateAccess([]string{"alpha"}, nil, nil)
		h.wantError(echo(nobody, ""), 401, "null", -32600)
		if res, body := h.ask(echo(nobody, "alpha")); res.StatusCode != 404 {
			t.Errorf("alpha finds what was nobody's: %s %s", res.Status, body)
		}

		one := newHouse(t, func(o *Options) { o.Tokens = []string{"alpha"} })
		alpha, _ := one.enter("2025-11-25", map[string]string{"Authorization": "Bearer alpha"})
		one.door.UpdateAccess([]string{"beta", "alpha"}, nil, nil)
		one.want(echo(alpha, "alpha"), 200, result("1", "{}"))
		if res, body := one.ask(echo(alpha, "beta")); res.StatusCode != 404 {
			t.Errorf("beta finds alpha's session: %s %s", res.Status, body)
		}
		one.door.UpdateAccess([]string{"beta"}, nil, nil)
		one.wantError(echo(alpha, "alpha"), 401, "null", -32600)
		if res, body := one.ask(echo(alpha, "beta")); res.StatusCode != 404 {
			t.Errorf("beta, who is alone now, finds alpha's session: %s %s", res.Status, body)
		}
	})
}

// Somebody who was let in just before their token was taken back opens nothing any more.
func TestNothingIsOpenedUnderATokenThatIsGone(t *testing.T) {
	h := newHouse(t, func(o *Options) { o.Tokens = []string{"alpha", "beta"} })
	who := h.door.rules.Load().tokens[0].who
	h.door.UpdateAccess([]string{"beta"}, nil, nil)
	if no := h.door.open(h.door.newSession(who)); no == nil || no.status != 401 {
		t.Errorf("a session: %+v", no)
	}
	if no := h.door.receive(&visit{door: h.door, who: who}); no == nil || no.status != 401 {
		t.Errorf("a request: %+v", no)
	}
}

func TestHostsAndOriginsAreRenewed(t *testing.T) {
	h := newHouse(t, func(o *Options) { o.Loopback, o.Hosts = true, []string{"gw.example"} })
	page := knock{body: initialize("2025-11-25"), header: map[string]string{"Origin": "https://app.example"}}
	h.want(page, 403, "*")
	h.want(knock{body: initialize("2025-11-25"), host: "gw.example"}, 200, "*")
	h.door.UpdateAccess(nil, []string{"https://app.example"}, nil)
	h.want(page, 200, "*")
	h.want(knock{body: initialize("2025-11-25"), host: "gw.example"}, 403, "*")
}
