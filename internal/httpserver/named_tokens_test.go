package httpserver

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"mcpgateway/internal/wire"
)

func (tr testRequest) by(token string) testRequest {
	return tr.withHeader("Authorization", "Bearer "+token)
}

// A named token is a principal with this name. Several names make several principals. The log
// records of a session contain the name.
func TestNamedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.Tokens = []StaticToken{{Text: "t-alice", Name: "alice"}, {Text: "t-2"},
				{Text: "t-bob", Name: "bob", Profile: "reader"}}
			o.Log = slog.New(slog.NewTextHandler(&log,
				&slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		for token, want := range map[string]string{"t-alice": "alice", "t-2": "2", "t-bob": "bob"} {
			h.want(statelessRequest("1", "echo", "").by(token), 200, "*")
			p := (<-h.handlers).Principal
			if p.Name() != want || p.IsOnly() || (len(p.Profiles()) == 1) != (want == "bob") {
				t.Errorf("%s: %+v", token, p)
			}
			key, session := h.initialize("2025-11-25",
				map[string]string{"Authorization": "Bearer " + token})
			if !session.Principal.Is(p) {
				t.Errorf("%s: the session has the principal %q", token, session.Principal.Key())
			}
			if line := "session=" + key[:32] + " principal=" + want; !strings.Contains(log.String(),
				line) {
				t.Errorf("no %q in the log:\n%s", line, log.String())
			}
		}
	})
}

// A request with the session of another principal is refused. The log and the audit record, see
// OnRejected, have the name of the sender.
func TestRejectedRequestHasPrincipal(t *testing.T) {
	var log logBuffer
	senders := make(chan string, 1)
	h := newHarness(t, func(o *Options) {
		o.Tokens = []StaticToken{{Text: "t-alice", Name: "alice"}, {Text: "t-bob", Name: "bob"}}
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.OnRejected = func(info SessionInfo, _ wire.Message, _ *wire.Error) {
			senders <- info.Principal.Name()
		}
	})
	key, _ := h.initialize("2025-11-25", bearerHeader("t-alice"))
	h.wantError(post(key, echoRequest).by("t-bob"), 404, "1", -32001)
	if sender := <-senders; sender != "bob" {
		t.Errorf("the sender is %q", sender)
	}
	const line = `msg="request rejected" principal=bob`
	if !strings.Contains(log.String(), line) {
		t.Errorf("no %q in the log:\n%s", line, log.String())
	}
}

// When a reload adds another principal, the first one keeps its sessions, and is no longer the only
// one.
func TestOnlyTokenGetsCompany(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("t-alice") })
	key, session := h.initialize("2025-11-25", bearerHeader("t-alice"))
	if !session.Principal.IsOnly() {
		t.Error("it is not the only one at first")
	}
	h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("t-alice", "t-bob")})
	if p := session.Principal; p.IsOnly() || p.Share(10) != 5 {
		t.Errorf("share %d of 10", p.Share(10))
	}
	h.want(post(key, echoRequest).by("t-alice"), 200, resultJSON("1", "{}"))
}

// The only token, with a name, is a principal that may use the whole of each limit.
func TestOnlyNamedToken(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.MaxSessions, o.Tokens = 2, []StaticToken{{Text: "t-alice", Name: "alice"}}
	})
	for range 2 {
		_, session := h.initialize("2025-11-25",
			map[string]string{"Authorization": "Bearer t-alice"})
		if p := session.Principal; p.Name() != "alice" || p.Share(10) != 10 {
			t.Errorf("%q, share %d", p.Name(), p.Share(10))
		}
	}
}

// When a token expires, its sessions, streams and open requests end at once. Then it is refused
// with an error that says so. Other tokens are not affected.
func TestTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expires := time.Now().Add(90 * time.Minute)
		h := newHarness(t, func(o *Options) {
			o.IdleTimeout = 24 * time.Hour
			o.Tokens = []StaticToken{{Text: "t-alice", Name: "alice", Expires: expires},
				{Text: "t-bob", Name: "bob"}, {Text: "t-3", Expires: expires.Add(time.Hour)}}
		})
		alice, _ := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer t-alice"})
		bob, _ := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer t-bob"})
		stream := h.openStream(testRequest{method: "GET", session: alice}.by("t-alice"))
		ended := make(chan time.Time, 2)
		go func() {
			for _, err := stream.next(); err == nil; _, err = stream.next() {
			}
			ended <- time.Now()
		}()
		go func() {
			if _, body := h.do(statelessRequest("7", "hold", "").by("t-alice")); body ==
				resultJSON("7", "{}") {
				t.Errorf("the request was answered: %s", body)
			}
			ended <- time.Now()
		}()
		<-h.heldRequests
		for range 2 {
			if at := <-ended; at.Before(expires) || at.After(expires.Add(time.Second)) {
				t.Errorf("ended at %v, the token expires at %v", at, expires)
			}
		}
		echo := requestJSON("1", "echo", "{}")
		_, body := h.do(post(alice, echo).by("t-alice"))
		if !strings.Contains(body, "the token alice expired at "+
			expires.UTC().Format(time.RFC3339)) || !strings.Contains(body, "new one") {
			t.Errorf("the error is %s", body)
		}
		for _, tr := range []testRequest{post(alice, echo), statelessRequest("1", "echo", ""),
			{method: "GET", path: "/sse"}, {body: initializeRequest("2025-11-25")}} {
			if res := h.wantError(tr.by("t-alice"), 401, "null", -32600); res.Header.Get(
				"WWW-Authenticate") == "" {
				t.Error("no challenge")
			}
		}
		h.want(post(bob, echo).by("t-bob"), 200, resultJSON("1", "{}"))
		h.want(statelessRequest("1", "echo", "").by("t-3"), 200, "*")
		time.Sleep(time.Hour)
		h.wantError(statelessRequest("1", "echo", "").by("t-3"), 401, "null", -32600)

		// A reload with a later time makes the token valid again, and its old sessions stay closed.
		h.server.UpdateAccess(AccessRules{Tokens: []StaticToken{
			{Text: "t-alice", Name: "alice", Expires: time.Now().Add(time.Hour)}}})
		h.want(statelessRequest("1", "echo", "").by("t-alice"), 200, "*")
		if res, body := h.do(post(alice, echo).by("t-alice")); res.StatusCode != 404 {
			t.Errorf("the old session: %s %s", res.Status, body)
		}
		time.Sleep(time.Hour)
		h.wantError(statelessRequest("1", "echo", "").by("t-alice"), 401, "null", -32600)
	})
}

// A reload that brings an earlier expiry is noticed, also if no token had an expiry before.
func TestUpdateAccessShortensExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := StaticToken{Text: "t-alice", Name: "alice"}
		h := newHarness(t, func(o *Options) { o.Tokens = []StaticToken{token} })
		key, session := h.initialize("2025-11-25",
			map[string]string{"Authorization": "Bearer t-alice"})
		token.Expires = time.Now().Add(30 * time.Second)
		h.server.UpdateAccess(AccessRules{Tokens: []StaticToken{token}})
		h.want(post(key, requestJSON("1", "echo", "{}")).by("t-alice"), 200, resultJSON("1", "{}"))
		<-session.closed
		if now := time.Now(); now.Before(token.Expires) || now.Sub(token.Expires) > time.Second {
			t.Errorf("closed at %v", now)
		}
	})
}

// A token that gets another text or another name loses its sessions. The text alone does not
// change the identity.
func TestUpdateAccessChangesToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			o.Tokens = []StaticToken{{Text: "t-1", Name: "alice"}, {Text: "t-2", Name: "bob"}}
		})
		open := func(token string) *testHandler {
			_, session := h.initialize("2025-11-25",
				map[string]string{"Authorization": "Bearer " + token})
			return session
		}
		alice, bob := open("t-1"), open("t-2")
		h.server.UpdateAccess(AccessRules{Tokens: []StaticToken{{Text: "t-1b", Name: "alice"},
			{Text: "t-2", Name: "robert"}}})
		<-alice.closed
		<-bob.closed
		h.wantError(statelessRequest("1", "echo", "").by("t-1"), 401, "null", -32600)
		if again := open("t-1b"); !again.Principal.Is(alice.Principal) {
			t.Error("alice has another identity")
		}
		if again := open("t-2"); again.Principal.Is(bob.Principal) {
			t.Error("robert has the identity of bob")
		}
	})
}

// The Server keeps only hashes of tokens.
func TestServerKeepsNoTokenTexts(t *testing.T) {
	const secret = "secret-text-of-alice"
	h := newHarness(t, func(o *Options) {
		o.Tokens = []StaticToken{{Text: secret, Name: "alice"}}
	})
	h.want(statelessRequest("1", "echo", "").by(secret), 200, "*")
	h.server.UpdateAccess(AccessRules{Tokens: []StaticToken{{Text: secret + "2", Name: "alice"}}})
	seen := make(map[unsafe.Pointer]bool)
	var search func(v reflect.Value, path string)
	search = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if v.Kind() == reflect.Pointer {
				if v.IsNil() || seen[v.UnsafePointer()] || strings.Count(path, ".") > 6 {
					return
				}
				seen[v.UnsafePointer()] = true
			}
			if !v.IsNil() {
				search(v.Elem(), path)
			}
		case reflect.Struct:
			for f, value := range v.Fields() {
				search(value, path+"."+f.Name)
			}
		case reflect.Slice, reflect.Array:
			if v.Type().Elem().Kind() == reflect.Uint8 {
				if v.Kind() == reflect.Slice && bytes.Contains(v.Bytes(), []byte(secret)) {
					t.Errorf("%s contains the token", path)
				}
				return
			}
			for i := range v.Len() {
				search(v.Index(i), path)
			}
		case reflect.String:
			if strings.Contains(v.String(), secret) {
				t.Errorf("%s contains the token", path)
			}
		}
	}
	search(reflect.ValueOf(h.server.access.policy.Load()), "policy")
	search(reflect.ValueOf(h.server.access), "access")
	search(reflect.ValueOf(&h.server.opts), "opts")
	if len(seen) < 4 {
		t.Errorf("only %d values were searched", len(seen))
	}
}
