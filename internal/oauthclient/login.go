package oauthclient

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"mcpgateway/internal/weburl"
)

// A Login is a login in progress: somebody opens URL in a browser, and the authorization server
// redirects the browser to the redirect URI.
type Login struct {
	URL    string // of the authorization server
	Issuer string
	Scopes []string // that are requested

	client   *Authorization
	meta     *metadata
	config   oauth2.Config
	grant    *Grant // without tokens
	verifier string // PKCE
	state    string
	finished atomic.Bool
}

// State returns the single-use value of the parameter state, which the redirect repeats.
func (l *Login) State() string { return l.state }

// BeginLogin finds the authorization server, registers the gateway there if necessary, and returns
// the Login with the authorization code grant and PKCE (S256). It needs no response that was
// refused, but uses the challenge of the last one.
func (a *Authorization) BeginLogin(ctx context.Context, redirectURI string) (*Login, error) {
	if a.ClientCredentials {
		return nil, errors.New("with oauth.grant: client_credentials nobody needs to log in")
	}
	g, err := a.current(true)
	if err != nil {
		a.Log.Warn("stored login not readable; replaced by the new one", "err", err)
	}
	a.mu.Lock()
	ch := a.challenge
	a.mu.Unlock()
	preferred := ""
	if g != nil {
		preferred = g.Issuer
	}
	m, err := a.discover(ctx, ch, preferred)
	switch {
	case err != nil:
		return nil, err
	case m.assumed && !ch.isBearer && a.isUnconfigured():
		return nil, errNotOAuth
	}
	if g != nil && g.Issuer != m.server.Issuer {
		g = nil // a grant of another issuer is not used
	}
	authorization, err := url.Parse(m.server.AuthorizationEndpoint)
	switch {
	case m.server.AuthorizationEndpoint == "":
		return nil, fmt.Errorf("the authorization server %s has no authorization_endpoint; "+
			"a client with a secret may need oauth.grant: client_credentials",
			shown(m.server.Issuer))
	case err == nil:
		err = a.guard.check(authorization)
	}
	if err != nil {
		return nil, fmt.Errorf("the authorization_endpoint %s: %w",
			shown(m.server.AuthorizationEndpoint), err)
	}
	l := &Login{Issuer: m.server.Issuer, Scopes: a.requestedScopes(m, ch, g), client: a, meta: m,
		verifier: oauth2.GenerateVerifier(), state: rand.Text()}
	a.mask(l.verifier)
	l.grant, err = a.register(ctx, m, g, redirectURI)
	if err != nil {
		return nil, err
	}
	l.config = oauth2.Config{
		ClientID: l.grant.Client.ID, ClientSecret: a.clientSecret(l.grant),
		Endpoint: oauth2.Endpoint{AuthURL: m.server.AuthorizationEndpoint,
			TokenURL:  m.server.TokenEndpoint,
			AuthStyle: l.grant.Client.AuthStyle.library()},
		RedirectURL: redirectURI, Scopes: l.Scopes,
	}
	l.URL = l.config.AuthCodeURL(l.state, oauth2.S256ChallengeOption(l.verifier),
		oauth2.SetAuthURLParam("resource", m.resource))
	return l, nil
}

// offlineAccess is the scope with which OpenID providers give a refresh token.
const offlineAccess = "offline_access"

// requestedScopes returns the scopes to request: those that the server has demanded for a request
// in addition to the granted ones; or those that the user has configured; or else those of the
// challenge or of the metadata, and offline_access if the authorization server has it. g may be
// nil.
func (a *Authorization) requestedScopes(m *metadata, ch challenge, g *Grant) []string {
	if g != nil && g.Wanted != nil {
		return g.Wanted
	}
	if a.Scopes != nil {
		return a.Scopes
	}
	scopes := ch.scopes
	if len(scopes) == 0 {
		scopes = m.scopes
	}
	if !a.ClientCredentials &&
		slices.Contains(m.server.ScopesSupported, offlineAccess) {
		scopes = union(scopes, []string{offlineAccess})
	}
	return scopes
}

// register returns a grant without tokens, of a client that can be used with redirectURI: the
// preregistered one, the client ID metadata document, the client that was registered earlier
// according to g (nil = none), or one that is registered now (RFC 7591).
func (a *Authorization) register(ctx context.Context, m *metadata, g *Grant, redirectURI string) (
	*Grant, error,
) {
	server := &m.server
	next := &Grant{Issuer: server.Issuer, Resource: m.resource,
		TokenEndpoint: server.TokenEndpoint, RevocationEndpoint: server.RevocationEndpoint}
	switch {
	case a.ClientID != "":
		next.Client = a.preregistered(server)
		return next, nil
	case a.ClientMetadataURL != "" && server.ClientIDMetadataDocumentSupported:
		next.Client = Registration{ID: a.ClientMetadataURL, AuthStyle: AuthNone}
		return next, nil
	case g != nil && g.Client.RedirectURI == redirectURI &&
		(g.Client.SecretExpires.IsZero() || time.Now().Before(g.Client.SecretExpires)):
		next.Client, next.Secrets.ClientSecret = g.Client, g.Secrets.ClientSecret
		return next, nil
	case server.RegistrationEndpoint == "":
		return nil, fmt.Errorf("the authorization server %s does not register clients itself: "+
			"register one there with the redirect URI %s, "+
			"and set oauth.client_id%s of the backend",
			shown(server.Issuer), redirectURI, portToSet(redirectURI))
	}
	response, err := oauthex.RegisterClient(ctx, server.RegistrationEndpoint,
		&oauthex.ClientRegistrationMetadata{
			ClientName:      clientName,
			RedirectURIs:    []string{redirectURI},
			GrantTypes:      []string{"authorization_code", "refresh_token"},
			ResponseTypes:   []string{"code"},
			ApplicationType: applicationType(redirectURI),
			TokenEndpointAuthMethod: string(
				authStyleFor(server.TokenEndpointAuthMethodsSupported, AuthNone)),
		}, a.http)
	if err != nil {
		return nil, fmt.Errorf("the authorization server %s does not register the gateway: %w",
			shown(server.Issuer), registrationError(err))
	}
	next.Client = Registration{ID: response.ClientID, RedirectURI: redirectURI,
		SecretExpires: response.ClientSecretExpiresAt,
		AuthStyle:     AuthStyle(response.TokenEndpointAuthMethod)}
	next.Secrets.ClientSecret = response.ClientSecret
	switch {
	case response.ClientSecret == "":
		next.Client.AuthStyle = AuthNone
	case next.Client.AuthStyle != AuthBasic && next.Client.AuthStyle != AuthPost:
		next.Client.AuthStyle = authStyleFor(server.TokenEndpointAuthMethodsSupported, AuthBasic)
	}
	a.mask(response.ClientSecret)
	if len(response.ClientID) > maxClientID || len(response.ClientSecret) > maxToken {
		return nil, fmt.Errorf("the authorization server %s registers a client whose id or secret "+
			"is too long", shown(server.Issuer))
	}
	return next, nil
}

// portToSet returns the part of advice that sets the port of a redirect URI of gateway login; "" =
// the redirect URI is of another kind.
func portToSet(redirectURI string) string {
	if u, err := url.Parse(redirectURI); err == nil && weburl.IsLoopback(u.Hostname()) &&
		u.Port() != "" {
		return ", and oauth.redirect_port: " + u.Port() + ","
	}
	return ""
}

// maxClientID bounds the id of a client that an authorization server registers, in bytes.
const maxClientID = 4 << 10

// clientName is the name under which the gateway registers itself.
const clientName = "mcp-gateway"

// preregistered returns the client that the user has configured.
func (a *Authorization) preregistered(server *oauthex.AuthServerMeta) Registration {
	style := AuthNone
	if a.ClientSecret != "" {
		style = authStyleFor(server.TokenEndpointAuthMethodsSupported, AuthBasic)
	}
	return Registration{ID: a.ClientID, AuthStyle: style}
}

// authStyleFor returns the first choice if supported contains it, or else one of the other ways
// that supported contains. A server that names none supports client_secret_basic (RFC 8414 §2).
func authStyleFor(supported []string, first AuthStyle) AuthStyle {
	for _, style := range []AuthStyle{first, AuthBasic, AuthPost, AuthNone} {
		if slices.Contains(supported, string(style)) {
			return style
		}
	}
	return AuthBasic
}

// applicationType returns the application_type of a client (OpenID Connect Registration §2): native
// if the redirect URI is on this machine.
func applicationType(redirectURI string) string {
	u, err := url.Parse(redirectURI)
	if err == nil && (weburl.IsLocalName(u.Hostname()) || weburl.IsLoopback(u.Hostname())) {
		return "native"
	}
	return "web"
}

// registrationError returns the error of a registration without the response, except its error
// code and description.
func registrationError(err error) error {
	if refused, is := errors.AsType[*oauthex.ClientRegistrationError](err); is {
		return &responseError{status: http.StatusBadRequest, code: refused.ErrorCode,
			description: refused.ErrorDescription}
	}
	if u, is := errors.AsType[*url.Error](err); is {
		return withoutURL(u)
	}
	if errors.Is(err, errTooLong) {
		return errTooLong
	}
	if isTimeout(err) || errors.Is(err, errNoAnswer) {
		return errNoAnswer
	}
	// The library's text repeats the response after the status.
	text, _, _ := strings.Cut(err.Error(), ": ")
	return errors.New(text)
}

// Finish completes the login with the parameters of the redirect. It checks state and iss (RFC
// 9207), exchanges the code for tokens, and stores them. Parameters of another
// redirect do not change the Login: the error is then ErrOtherLogin or ErrNoRedirect. Further calls
// with the parameters of this login return ErrFinished.
func (l *Login) Finish(ctx context.Context, redirect url.Values) error {
	if subtle.ConstantTimeCompare([]byte(redirect.Get("state")), []byte(l.state)) != 1 {
		return ErrOtherLogin
	}
	code := redirect.Get("code")
	if code == "" && redirect.Get("error") == "" {
		return ErrNoRedirect
	}
	if l.finished.Swap(true) {
		return ErrFinished
	}
	c, server := l.client, &l.meta.server
	iss := redirect.Get("iss")
	switch {
	case iss != "" && iss != server.Issuer,
		iss == "" && server.AuthorizationResponseIssParameterSupported:
		return fmt.Errorf("the redirect comes from the issuer %s, not from %s", shown(iss),
			shown(server.Issuer))
	case redirect.Get("error") != "":
		return fmt.Errorf("the authorization server %s has refused the login: %w",
			shown(server.Issuer), &responseError{code: redirect.Get("error"),
				description: redirect.Get("error_description")})
	}
	c.mask(code)
	t, err := l.config.Exchange(c.withClient(ctx), code,
		oauth2.VerifierOption(l.verifier),
		oauth2.SetAuthURLParam("resource", l.meta.resource))
	if err != nil {
		return fmt.Errorf("the authorization server %s gives no token for the code: %w",
			shown(server.Issuer), tokenError(err, code, l.verifier, l.config.ClientSecret))
	}
	g, err := c.checkToken(l.grant, t, l.Scopes)
	if err != nil {
		return err
	}
	unlock, err := c.Store.lock(ctx, c.key)
	if err != nil {
		return err
	}
	defer unlock()
	return c.save(g)
}

var (
	// ErrOtherLogin is the error of Finish for a redirect with another state.
	ErrOtherLogin = errors.New("the redirect does not belong to this login: its state differs")
	// ErrNoRedirect is the error of Finish for parameters that have neither a code nor an error,
	// such as those of the login page.
	ErrNoRedirect = errors.New("this is not the redirect: it has no code")
	// ErrFinished is the error of a further call of Finish with the redirect of the login.
	ErrFinished = errors.New("this login was completed before; begin another one")
)

// AwaitLogin waits until NeedsLogin returns nil, because this process or another one has logged in.
// It returns the cause of ctx if ctx is done first.
func (a *Authorization) AwaitLogin(ctx context.Context) error {
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		if _, err := a.current(true); err != nil {
			a.Log.Debug("stored login not readable", "err", err)
		}
		if a.NeedsLogin() == nil {
			return nil
		}
		timer := time.NewTimer(storeInterval)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// logoutInterval is the longest time for which AwaitLogout does not notice that another process has
// deleted the login.
const logoutInterval = 2 * time.Second

// AwaitLogout waits until a login has been used and was then deleted, by this process or another
// one. It returns the cause of ctx if ctx is done first. Without a login, it does not read the
// Store.
func (a *Authorization) AwaitLogout(ctx context.Context) error {
	for existed := false; ; {
		a.mu.Lock()
		changed, exists := a.changed, a.grant != nil
		a.mu.Unlock()
		if existed && !exists {
			return nil
		}
		existed = exists
		var next <-chan time.Time
		if exists {
			next = time.After(logoutInterval)
		}
		select {
		case <-changed:
		case <-next:
			if _, err := a.current(true); err != nil {
				a.Log.Debug("stored login not readable", "err", err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WantsLogin reports whether a login is useful: there is none, it has ended, or the server has
// demanded more scopes than were granted.
func (a *Authorization) WantsLogin() bool {
	g, err := a.current(true)
	return err != nil || g == nil || g.Secrets.Access == "" || g.Wanted != nil ||
		a.NeedsLogin() != nil
}

// RedirectURI returns the redirect URI with which the gateway is registered dynamically; "" = none.
// A login with this redirect URI needs no other registration.
func (a *Authorization) RedirectURI() string {
	if g, err := a.current(true); err == nil && g != nil {
		return g.Client.RedirectURI
	}
	return ""
}
