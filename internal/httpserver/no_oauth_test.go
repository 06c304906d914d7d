package httpserver

import (
	"encoding/json"
	"strings"
	"testing"
)

// A client that looks for OAuth needs no token for the response, which describes how to send a
// token.
func TestNoOAuth_F_DOOR_5(t *testing.T) {
	for _, tokens := range [][]string{nil, {"secret"}} {
		h := newHarness(t, func(o *Options) {
			o.Tokens, o.Loopback = bearerTokens(tokens...), true
		})
		for _, tr := range []testRequest{
			{method: "GET", path: "/.well-known/oauth-protected-resource"},
			{method: "GET", path: "/.well-known/oauth-protected-resource/mcp"},
			{method: "GET", path: "/.well-known/oauth-authorization-server"},
			{method: "GET", path: "/.well-known/oauth-authorization-server/mcp/"},
			{method: "GET", path: "/mcp/.well-known/openid-configuration"},
			{method: "POST", path: "/register", body: `{"redirect_uris":[]}`},
			{method: "GET", path: "/authorize?client_id=x"},
			{method: "POST", path: "/token", body: `x=1`},
		} {
			res, body := h.do(tr.withHeader("Authorization", "Bearer wrong"))
			var e struct {
				Error       string `json:"error"`
				Description string `json:"error_description"`
			}
			err := json.Unmarshal([]byte(body), &e)
			if res.StatusCode != 404 || err != nil ||
				res.Header.Get("Content-Type") != "application/json" || e.Error == "" ||
				strings.Contains(e.Description, "Authorization: Bearer TOKEN") != (tokens != nil) {
				t.Errorf("%s %s: %s %v %s", tr.method, tr.path, res.Status, err, body)
			}
			h.wantError(tr.withHeader("Origin", "http://evil.example"), 403, "null", -32600)
		}
		h.wantError(testRequest{path: "/registers", body: "{}"}.withHeader("Authorization",
			"Bearer secret"), 404, "null", -32600)
	}
}
