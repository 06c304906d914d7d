package oidctest

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	scopeOpenID  = oidc.ScopeOpenID
	scopeOffline = oidc.ScopeOfflineAccess
)

// Methods of client authentication at the token endpoint and the revocation endpoint.
const (
	AuthBasic = string(oidc.AuthMethodBasic)
	AuthPost  = string(oidc.AuthMethodPost)
	AuthNone  = string(oidc.AuthMethodNone)
)

// A Client is a registered OAuth client.
type Client struct {
	ID     string
	Secret string
	// Auth is the only method that the provider accepts from the client; empty = AuthBasic.
	Auth string
	// RedirectURIs of the client. A loopback URI matches with every port (RFC 8252), unless the
	// client also has one that is not loopback.
	RedirectURIs []string
	// Grants that the client may use; empty = authorization_code and refresh_token.
	Grants []string
}

// A libraryClient is a Client for the library: an op.Client.
type libraryClient struct {
	Client
	store *storage
}

func (c libraryClient) GetID() string                    { return c.ID }
func (c libraryClient) RedirectURIs() []string           { return c.Client.RedirectURIs }
func (c libraryClient) PostLogoutRedirectURIs() []string { return nil }
func (c libraryClient) IDTokenLifetime() time.Duration   { return time.Hour }
func (c libraryClient) DevMode() bool                    { return true } // permits http
func (c libraryClient) ClockSkew() time.Duration         { return 0 }

func (c libraryClient) IDTokenUserinfoClaimsAssertion() bool { return false }

func (c libraryClient) AuthMethod() oidc.AuthMethod { return oidc.AuthMethod(c.Auth) }

func (c libraryClient) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

// LoginURL returns the URL to which a login page redirects at the end, because there is none.
func (c libraryClient) LoginURL(id string) string {
	return callbackPath + "?id=" + url.QueryEscape(id)
}

func (c libraryClient) ApplicationType() op.ApplicationType {
	notLoopback := func(uri string) bool {
		_, loopback := op.HTTPLoopbackOrLocalhost(uri)
		return !loopback
	}
	if slices.ContainsFunc(c.Client.RedirectURIs, notLoopback) {
		return op.ApplicationTypeWeb
	}
	return op.ApplicationTypeNative
}

func (c libraryClient) GrantTypes() []oidc.GrantType {
	var list []oidc.GrantType
	for _, g := range c.Grants {
		list = append(list, oidc.GrantType(g))
	}
	return list
}

func (c libraryClient) AccessTokenType() op.AccessTokenType {
	if c.store.options.Opaque {
		return op.AccessTokenTypeBearer
	}
	return op.AccessTokenTypeJWT
}

func (c libraryClient) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return slices.Clone[[]string]
}

func (c libraryClient) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return slices.Clone[[]string]
}

func (c libraryClient) IsScopeAllowed(scope string) bool {
	allowed := c.store.options.Scopes
	return allowed == nil || slices.Contains(allowed, scope)
}

// addClient registers a client, and returns it with its defaults.
func (s *storage) addClient(c Client) Client {
	c.ID = cmp.Or(c.ID, "client-"+randomText())
	c.Auth = cmp.Or(c.Auth, AuthBasic)
	if c.Auth != AuthNone {
		c.Secret = cmp.Or(c.Secret, "secret-"+randomText())
	}
	if len(c.Grants) == 0 {
		c.Grants = []string{string(oidc.GrantTypeCode), string(oidc.GrantTypeRefreshToken)}
	}
	s.record.addSecret(c.Secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[c.ID] = c
	return c
}

// client returns a registered client.
func (s *storage) client(id string) (Client, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clients[id]
	return c, ok
}
