package httpserver

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// at returns the request with the path of a profile.
func (tr testRequest) at(profile string) testRequest {
	tr.path = "/mcp/" + profile
	return tr
}

func profileOptions(o *Options) {
	o.IdleTimeout = 24 * time.Hour
	o.Tokens = []StaticToken{{Text: "t-alice", Name: "alice"},
		{Text: "t-bob", Name: "bob", Profile: "a"}}
	o.Profiles = []string{"a", "b"}
}

// The path selects a profile, in addition to that of the token. A slash at the end, or a
// percent-encoded letter, makes no difference. An unknown profile is an error, also below a known
// one.
func TestPathSelectsProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, profileOptions)
		for path, want := range map[string]string{
			"/mcp": "", "/mcp/a": "a", "/mcp/b/": "b", "/mcp/%61": "a",
		} {
			tr := statelessRequest("1", "echo", "")
			tr.path = path
			h.want(tr.by("t-alice"), 200, "*")
			if got := (<-h.handlers).Principal; got.ProfileKey() != want || got.Name() != "alice" {
				t.Errorf("%s: profile %q", path, got.ProfileKey())
			}
			h.want(tr.by("t-bob"), 200, "*")
			want = strings.TrimPrefix(strings.TrimPrefix("a,"+want, "a,a"), "a,")
			if want == "" {
				want = "a"
			} else if want == "b" {
				want = "a,b"
			}
			if got := (<-h.handlers).Principal; got.ProfileKey() != want {
				t.Errorf("%s of bob: profile %q, want %q", path, got.ProfileKey(), want)
			}
		}
		for _, path := range []string{"/mcp/c", "/mcp/A", "/mcp/a/b", "/mcp/a%2Fb", "/mcp/a,b",
			"/mcp/../mcp", "/sse/c", "/mcpa", "/messages/a"} {
			tr := statelessRequest("1", "echo", "")
			tr.path = path
			h.wantError(tr.by("t-alice"), 404, "null", -32600)
			h.wantError(tr, 401, "null", -32600) // names of profiles are not for everyone
		}
	})
}

// A session exists only at the path where it was opened: at any other path, it is as unknown as a
// session that does not exist.
func TestSessionBelongsToPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, profileOptions)
		token := map[string]string{"Authorization": "Bearer t-alice"}
		res := h.want(testRequest{path: "/mcp/a", body: initializeRequest("2025-11-25"),
			header: token}, 200, "*")
		key := res.Header.Get("Mcp-Session-Id")
		if p := (<-h.handlers).Principal; p.ProfileKey() != "a" {
			t.Errorf("the session has the profile %q", p.ProfileKey())
		}
		echo := requestJSON("1", "echo", "{}")
		requests := func(key string) []testRequest {
			return []testRequest{post(key, echo), {method: http.MethodGet, session: key},
				{method: http.MethodDelete, session: key}}
		}
		unknown := strings.Repeat("0", len(key))
		for i, tr := range requests(key) {
			for _, path := range []string{"/mcp", "/mcp/b"} {
				other := requests(unknown)[i]
				tr.path, other.path = path, path
				got, text := h.do(tr.by("t-alice"))
				want, wantText := h.do(other.by("t-alice"))
				if got.StatusCode != 404 || want.StatusCode != 404 || text != wantText {
					t.Errorf("%s %s: %d %s\nunknown session: %d %s", tr.method, path, got.StatusCode,
						text, want.StatusCode, wantText)
				}
			}
		}
		h.want(post(key, echo).at("a").by("t-alice"), 200, resultJSON("1", "{}"))
		h.wantError(post(key, echo).at("a").by("t-bob"), 404, "1", -32001)
	})
}

// The messages of HTTP+SSE have no profile in their path: the session has the profile of its
// stream.
func TestHTTPSSESessionHasProfileOfItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, profileOptions)
		stream := h.openStream(testRequest{method: "GET", path: "/sse/b"}.by("t-bob"))
		defer stream.disconnect()
		if p := (<-h.handlers).Principal; p.ProfileKey() != "a,b" {
			t.Errorf("the session has the profiles %q", p.ProfileKey())
		}
		endpoint, err := stream.next()
		if err != nil {
			t.Fatal(err)
		}
		tr := testRequest{path: "/" + strings.TrimPrefix(endpoint.data, "/"),
			body: requestJSON("1", "echo", "{}")}
		h.want(tr.by("t-bob"), 202, "*")
		stream.want("", resultJSON("1", "{}"))
		h.wantError(tr.by("t-alice"), 404, "1", -32001)
	})
}

// When a profile is removed, the sessions and requests at its path end. When the profile of a token
// changes, those of the token end. Others continue.
func TestSessionsEndWithTheirProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Options
		h := newHarness(t, func(options *Options) {
			profileOptions(options)
			o = *options
		})
		echo := requestJSON("1", "echo", "{}")
		open := func(path, token string) string {
			res := h.want(testRequest{path: path, body: initializeRequest("2025-11-25")}.by(token),
				200, "*")
			<-h.handlers
			return res.Header.Get("Mcp-Session-Id")
		}
		atA, atB, plain := open("/mcp/a", "t-alice"), open("/mcp/b", "t-alice"),
			open("/mcp", "t-alice")
		bobs := open("/mcp", "t-bob")
		ended := make(chan string, 1)
		go func() {
			tr := statelessRequest("7", "hold", "")
			tr.path = "/mcp/b"
			_, body := h.do(tr.by("t-alice"))
			ended <- body
		}()
		<-h.heldRequests
		<-h.handlers

		rules := o.AccessRules
		rules.Profiles = []string{"a"}
		h.server.UpdateAccess(rules)
		if body := <-ended; body == resultJSON("7", "{}") {
			t.Errorf("the request at the removed path got %s", body)
		}
		h.wantError(post(atB, echo).at("b").by("t-alice"), 404, "null", -32600)
		h.want(post(atA, echo).at("a").by("t-alice"), 200, resultJSON("1", "{}"))
		h.want(post(plain, echo).by("t-alice"), 200, resultJSON("1", "{}"))
		h.want(post(bobs, echo).by("t-bob"), 200, resultJSON("1", "{}"))

		rules.Profiles = []string{"a", "b"}
		rules.Tokens = []StaticToken{rules.Tokens[0], {Text: "t-bob", Name: "bob", Profile: "b"}}
		h.server.UpdateAccess(rules)
		h.wantError(post(atB, echo).at("b").by("t-alice"), 404, "1", -32001) // it has ended
		h.wantError(post(bobs, echo).by("t-bob"), 404, "1", -32001)
		h.want(post(atA, echo).at("a").by("t-alice"), 200, resultJSON("1", "{}"))
		h.want(statelessRequest("1", "echo", "").by("t-bob"), 200, "*")
		if p := (<-h.handlers).Principal; p.ProfileKey() != "b" {
			t.Errorf("bob has the profile %q", p.ProfileKey())
		}
	})
}

// Without authentication, the path still selects the profile, and a session belongs to it.
func TestPathSelectsProfileWithoutTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Profiles = []string{"a"} })
		res := h.want(testRequest{path: "/mcp/a", body: initializeRequest("2025-11-25")}, 200, "*")
		key := res.Header.Get("Mcp-Session-Id")
		if p := (<-h.handlers).Principal; p.ProfileKey() != "a" || p.Key() != "" || !p.IsOnly() {
			t.Errorf("principal %+v", p)
		}
		echo := requestJSON("1", "echo", "{}")
		h.wantError(post(key, echo), 404, "1", -32001)
		h.want(post(key, echo).at("a"), 200, resultJSON("1", "{}"))
	})
}
