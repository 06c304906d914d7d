package httpserver

import (
	"encoding/json"
	"strings"
	"testing"
)

// A client that looks for OAuth is told, without a token, that it needs one and how it is set.
func TestNoOAuth_F_DOOR_5(t *testing.T) {
	for _, tokens := range [][]string{nil, {"secret"}} {
		h := newHouse(t, func(o *Options) { o.Tokens, o.Loopback = tokens, true })
		for _, v := range []knock{
			{verb: "GET", path: "/.well-known/oauth-protected-resource"},
			{verb: "GET", path: "/.well-known/oauth-protected-resource/mcp"},
			{verb: "GET", path: "/.well-known/oauth-authorization-server"},
			{verb: "GET", path: "/.well-known/oauth-authorization-server/mcp/"},
			{verb: "GET", path: "/mcp/.well-known/openid-configuration"},
			{verb: "POST", path: "/register", body: `{"redirect_uris":[]}`},
			{verb: "GET", path: "/authorize?client_id=x"},
			{verb: "POST", path: "/token", body: `x=1`},
		} {
			res, body := h.ask(v.with("Authorization", "Bearer wrong"))
			var e struct {
				Error       string `json:"error"`
				Description string `json:"error_description"`
			}
			err := json.Unmarshal([]byte(body), &e)
			if res.StatusCode != 404 || err != nil || res.Header.Get("Content-Type") != "application/json" || e.Error == "" ||
				strings.Contains(e.Description, "Authorization: Bearer TOKEN") != (tokens != nil) {
				t.Errorf("%s %s: %s %v %s", v.verb, v.path, res.Status, err, body)
			}
			h.wantError(v.with("Origin", "http://evil.example"), 403, "null", -32600)
		}
		h.wantError(knock{path: "/registers", body: "{}"}.with("Authorization", "Bearer secret"), 404, "null", -32600)
	}
}
