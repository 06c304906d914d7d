package httpserver

import (
	"net/http"
	"testing"
)

// Without tokens, a page of another port of this machine is rejected like any other page.
func TestPagesOfOtherPorts_F_SEC_6(t *testing.T) {
	const other, listed = "http://localhost:3000", "http://localhost:6274"
	newServer := func(tokens ...string) *harness {
		return newHarness(t, func(o *Options) {
			o.Loopback, o.Origins, o.Tokens = true, []string{listed},
				bearerTokens(tokens...)
		})
	}
	open, closed := newServer(), newServer("secret")
	for _, host := range []string{"localhost:7420", "127.0.0.1:7420", "[::1]:7420"} {
		for origin, ok := range map[string]bool{
			"-": true, "http://" + host: true, listed: true,
			other: false, "http://127.0.0.1:3000": false, "http://[::1]:3000": false,
			"http://localhost": false, "https://localhost:7421": false,
		} {
			for _, tr := range []testRequest{{body: initializeRequest("2025-11-25")},
				{method: "OPTIONS"}, {method: "GET", path: "/sse"}, statelessRequest("1", "echo",
					"")} {
				tr.host = host
				res := open.send(tr.withHeader("Origin", origin))
				res.Body.Close()
				if (res.StatusCode < 300) != ok || !ok && res.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s from %s: %s", tr.method, host, origin, res.Status)
				}
			}
		}
	}
	for origin, status := range map[string]int{other: 200, "https://evil.example": 403} {
		tr := testRequest{body: initializeRequest("2025-11-25")}.withHeader("Origin", origin,
			"Authorization", "Bearer secret")
		closed.want(tr, status, "*")
		if status == 200 {
			closed.want(tr.withHeader("Authorization", "-"), 401, "*")
		}
	}
	open.server.UpdateAccess(AccessRules{Tokens: bearerTokens("secret")})
	open.want(testRequest{body: initializeRequest("2025-11-25")}.withHeader("Origin", other,
		"Authorization", "Bearer secret"), 200, "*")
}

// A request without an Origin that a browser sends for a page of another site or port opens no
// session.
func TestPagesWithoutOrigin_F_SEC_12(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Loopback, o.Origins = true, []string{"http://localhost:6274"}
	})
	for site, ok := range map[string]bool{"cross-site": false, "same-site": false,
		"Cross-Site": false, "same-origin": true, "none": true, "-": true} {
		for _, tr := range []testRequest{
			{method: "GET", path: "/sse"}, {method: "GET",
				path: "/sse/"}, {body: initializeRequest("2025-11-25")}, statelessRequest("1",
				"echo", ""),
		} {
			res := h.send(tr.withHeader("Sec-Fetch-Site", site, "Sec-Fetch-Mode", "no-cors"))
			res.Body.Close()
			if (res.StatusCode == 200) != ok || !ok && res.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s, %s: %s", tr.method, tr.path, site, res.Status)
			}
		}
	}
	page := testRequest{body: initializeRequest("2025-11-25")}.withHeader("Origin",
		"http://localhost:6274", "Sec-Fetch-Site", "cross-site")
	h.want(page, 200, "*")
}
