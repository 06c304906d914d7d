package backends

import (
	"net/http"
	"net/url"

	"mcpgateway/internal/config"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/transport/httpclient"
)

// newAuthorization returns the OAuth client of a backend, nil if the backend needs none: it has no
// URL, or a header Authorization, or Options.Logins is not set.
func newAuthorization(b *Backend) *oauthclient.Authorization {
	c, s := &b.cfg, b.set
	if s.Logins == nil || c.URL == "" || hasAuthorization(c) {
		return nil
	}
	tls, _ := httpclient.ClientTLS(c.TLS).Config() // dial reports an error
	auth, err := oauthclient.New(oauthclient.Options{
		Name: c.Name, URL: c.URL, TLS: tls, Store: s.Logins, Log: b.outputLog,
		OnSecret: s.OnSecret, OnNeedsLogin: b.onNeedsLogin,
		ClientID: c.OAuth.ClientID, ClientSecret: c.OAuth.ClientSecret,
		ClientMetadataURL: c.OAuth.ClientMetadataURL,
		ClientCredentials: c.OAuth.Grant == config.GrantClientCredentials,
		Scopes:            c.OAuth.Scopes, AllowPrivate: c.OAuth.AllowPrivate,
	})
	if err != nil {
		return nil // dial reports the error of the URL
	}
	return auth
}

// hasAuthorization reports whether the configuration contains the credentials of a backend.
func hasAuthorization(c *config.Backend) bool {
	for name := range c.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return true
		}
	}
	u, err := url.Parse(c.URL)
	return err == nil && u.User != nil
}
