package oauthclient

import (
	"context"
	"testing"
)

// An authorization server revokes a token only for its client, which authenticates as at the token
// endpoint (RFC 7009 §2.1).
func TestLogoutAuthenticatesTheClient(t *testing.T) {
	for method, secret := range map[AuthStyle]string{AuthBasic: "s3cr:t", AuthPost: "s3cr:t",
		AuthNone: ""} {
		w := newWorld()
		w.metadata["token_endpoint_auth_methods_supported"] = []string{string(method)}
		c := w.client(t, Options{ClientID: "m:e", ClientSecret: secret})
		w.logIn(t, c)
		if revoked, revokeErr, err := c.Logout(context.Background()); !revoked {
			t.Fatal(revokeErr, err)
		}
		form, header := w.lastForm(t, issuerURL+"/revoke")
		want := map[AuthStyle][3]string{
			AuthBasic: {"", "", "Basic bSUzQWU6czNjciUzQXQ="}, // m%3Ae:s3cr%3At
			AuthPost:  {"m:e", "s3cr:t", ""},
			AuthNone:  {"m:e", "", ""},
		}[method]
		got := [3]string{form.Get("client_id"), form.Get("client_secret"),
			header.Get("Authorization")}
		if got != want {
			t.Errorf("%s: %q, want %q", method, got, want)
		}
	}
}
