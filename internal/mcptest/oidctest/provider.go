package oidctest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

// DefaultUser is the subject of logins if nothing else is set.
const DefaultUser = "user"

// Options configure a Provider. The zero value is a provider that registers clients dynamically,
// accepts every scope, issues JWT access tokens that are valid for an hour, and issues rotating
// refresh tokens to clients that request the scope offline_access.
type Options struct {
	// Path of the issuer, such as "/tenant"; empty = the issuer has no path.
	Path string
	// Alg of the first signing key: "RS256", "ES256" (default, because its keys are made fast) or
	// "EdDSA".
	Alg string
	// Opaque makes access tokens random strings, which only introspection can validate. They are
	// JWTs otherwise.
	Opaque bool
	// AccessTokenLifetime is the lifetime of access tokens; 0 = one hour. Expirations have whole
	// seconds.
	AccessTokenLifetime time.Duration
	// Audience is the "aud" of all tokens. Empty = the requested resource (RFC 8707), or the id of
	// the client if it requested none.
	Audience []string
	// RequireResource refuses authorization and token requests without a resource.
	RequireResource bool
	// Scopes that clients may request; the provider drops others. They are also granted to requests
	// without a scope. Nil = clients may request every scope. openid and offline_access are always
	// permitted.
	Scopes []string
	// Claims returns additional claims for the tokens of a user; nil = none. It must be safe for
	// concurrent use.
	Claims func(user string) map[string]any
	// AlwaysRefresh issues a refresh token also without the scope offline_access.
	AlwaysRefresh bool
	// KeepRefreshToken turns off the rotation of refresh tokens: a refresh returns the same one.
	KeepRefreshToken bool
	// NoRegistration turns off dynamic registration.
	NoRegistration bool
	// DocumentClient enables client ID metadata documents: the provider uses it to get the document
	// of a client whose id is a URL. Nil = not supported.
	DocumentClient *http.Client
	// EditMetadata changes the metadata document before it is sent; nil = no change. It must be
	// safe for concurrent use. The same holds for the two functions below.
	EditMetadata func(document map[string]any)
	// EditRedirect changes the parameters of an authorization response.
	EditRedirect func(params url.Values)
	// EditTokens changes the response to a successful token request.
	EditTokens func(response map[string]any)
}

// A Provider is an OpenID provider and OAuth authorization server. Its methods may be called
// concurrently.
type Provider struct {
	options Options
	issuer  string
	server  *httptest.Server
	library *op.Provider
	store   *storage
	keys    *keyring
	record  *recorder
}

// New starts a Provider, which serves until the test ends.
func New(t testing.TB, o Options) *Provider {
	t.Helper()
	o.AccessTokenLifetime = cmp.Or(o.AccessTokenLifetime, time.Hour)
	keys, err := newKeyring(cmp.Or(o.Alg, ES256))
	if err != nil {
		t.Fatal(err)
	}
	record := newRecorder()
	p := &Provider{options: o, keys: keys, record: record, store: newStorage(o, keys, record)}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.server.Close)
	t.Cleanup(record.close) // first, so that blocked requests end
	p.issuer = p.server.URL + o.Path
	p.store.issuer = p.issuer
	p.library, err = op.NewProvider(&op.Config{
		CodeMethodS256: true, AuthMethodPost: true, GrantTypeRefreshToken: true,
		SupportedScopes: slices.Concat([]string{scopeOpenID, scopeOffline}, o.Scopes),
	}, p.store, op.StaticIssuer(p.issuer), op.WithAllowInsecure(), op.WithCrypto(p.store.opaque),
		op.WithAccessTokenVerifierOpts(op.WithSupportedAccessTokenSigningAlgorithms(
			RS256, ES256, EdDSA)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Issuer returns the issuer, which is also the base URL of the endpoints.
func (p *Provider) Issuer() string { return p.issuer }

// URL returns the URL of an endpoint. OpenIDMetadata has three forms; it returns the one that
// OpenID Connect prescribes.
func (p *Provider) URL(e Endpoint) string {
	switch e {
	case OAuthMetadata:
		return p.server.URL + wellKnownOAuth + p.options.Path
	case OpenIDMetadata:
		return p.issuer + wellKnownOpenID
	}
	return p.issuer + endpointPaths[e]
}

// SetUser sets the user that logs in at the authorization endpoint from now on. A name must not
// contain a colon.
func (p *Provider) SetUser(name string) { p.store.setUser(name) }

// SetDenied determines if authorization requests are denied from now on, with the error
// access_denied.
func (p *Provider) SetDenied(denied bool) { p.store.setDenied(denied) }

// Approve requests an authorization URL of this provider as the browser of a user does, and returns
// the redirect to the client without following it. An empty user is the one of SetUser.
func (p *Provider) Approve(authorizationURL, user string) (redirect string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, authorizationURL,
		nil)
	if err != nil {
		return "", err
	}
	req.Header.Set(userHeader, user)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	res.Body.Close()
	if redirect = res.Header.Get("Location"); redirect == "" {
		return "", fmt.Errorf("authorization endpoint: %s without a redirect", res.Status)
	}
	return redirect, nil
}

// AddClient registers a client. A client that authenticates with a secret gets a random one if it
// has none. An empty id is replaced by a random one. The registered client is returned.
func (p *Provider) AddClient(c Client) Client { return p.store.addClient(c) }

// IntrospectionClient returns the credentials of a resource server for the introspection endpoint,
// which requires client_secret_basic.
func (p *Provider) IntrospectionClient() (id, secret string) {
	c := p.store.introspector
	return c.ID, c.Secret
}

// RotateKeys adds a signing key for the algorithm, which signs all tokens from now on. The old keys
// stay in the key set.
func (p *Provider) RotateKeys(alg string) error { return p.keys.rotate(alg) }

// RetireKeys removes all keys but the newest from the key set: tokens of the others can no longer
// be verified.
func (p *Provider) RetireKeys() { p.keys.retire() }

// ExpireAccessTokens ends all access tokens that were issued until now: introspection says that
// they are not active, and a [ProtectedServer] refuses them. A JWT does not change, so that a
// resource server that only verifies its signature still accepts it.
func (p *Provider) ExpireAccessTokens() { p.store.expireAccessTokens() }

// RevokeGrants ends all access tokens and refresh tokens that were issued until now, so that users
// must log in again.
func (p *Provider) RevokeGrants() { p.store.revokeGrants() }

// ExpireAccessTokensOf is ExpireAccessTokens for one user.
func (p *Provider) ExpireAccessTokensOf(user string) { p.store.expireAccessTokensOf(user) }

// RevokeGrantsOf is RevokeGrants for one user.
func (p *Provider) RevokeGrantsOf(user string) { p.store.revokeGrantsOf(user) }

// Reuses returns how often a refresh token was used again after its rotation. The provider refuses
// it and revokes all tokens of the login.
func (p *Provider) Reuses() int { return p.store.reuseCount() }

// Counts returns the number of requests per endpoint, failed ones included.
func (p *Provider) Counts() map[Endpoint]int { return p.record.counts() }

// Requests returns the requests to an endpoint in the order of their arrival.
func (p *Provider) Requests(e Endpoint) []Request { return p.record.list(e) }

// Refreshes returns the number of token requests with a refresh token.
func (p *Provider) Refreshes() int {
	n := 0
	for _, r := range p.record.list(TokenEndpoint) {
		if r.Form.Get("grant_type") == "refresh_token" {
			n++
		}
	}
	return n
}

// Secrets returns all secrets that this provider issued or received: access, refresh and ID tokens,
// codes, code verifiers, and client secrets. Tests search logs for them.
func (p *Provider) Secrets() []string { return p.record.secretList() }

// SetFault makes requests to an endpoint fail as the fault says, until ClearFaults.
func (p *Provider) SetFault(e Endpoint, f Fault) { p.record.setFault(e, f) }

// ClearFaults ends all faults, also for requests that a fault blocks now.
func (p *Provider) ClearFaults() { p.record.clearFaults() }

// IssueToken returns an access token as if a client had obtained it. It panics if the spec cannot
// be met.
func (p *Provider) IssueToken(spec TokenSpec) string {
	token, err := p.store.issue(spec)
	if err != nil {
		panic(fmt.Errorf("oidctest: IssueToken: %w", err))
	}
	p.record.addSecret(token)
	return token
}

// randomText returns 26 random characters.
func randomText() string { return rand.Text() }
