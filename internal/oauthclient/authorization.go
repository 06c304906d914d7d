package oauthclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/text"
)

// Options describe an Authorization. Only Name, URL and Store are required.
type Options struct {
	Name      string      // of the backend, for errors
	URL       string      // of the server, http or https
	Principal string      // whose grant it is; "" = the gateway's
	Command   string      // with which the user logs in, for errors; "" = gateway login NAME
	TLS       *tls.Config // for all requests; nil = default
	Store     *Store
	Log       *slog.Logger // nil = no logging
	// OnNeedsLogin is called when NeedsLogin begins to return a reason. nil = not called.
	OnNeedsLogin func(*LoginError)
	// OnSecret is called with each token, code, code verifier and client secret before it is used
	// or stored, so that it can be masked. nil = not called.
	OnSecret func(secret string)
	// Go runs a function in a goroutine that the caller owns, with a context that is done when the
	// server is no longer used; the function then ends within 3 s. It reports false if no
	// goroutine can be started. nil = the Authorization starts a goroutine of its own.
	Go func(func(context.Context)) bool

	// ClientID and ClientSecret are a client that the user has registered at the authorization
	// server; "" = none.
	ClientID, ClientSecret string
	// ClientMetadataURL is the URL of a client ID metadata document, which is the id of the client
	// at authorization servers that support such documents; "" = none.
	ClientMetadataURL string
	// ClientCredentials selects the grant client_credentials: ClientID and ClientSecret are enough,
	// and nobody logs in.
	ClientCredentials bool
	RedirectPort      int      // of a redirect URI on this machine; 0 = any
	Scopes            []string // requested instead of those that the server names; nil = those
	AllowPrivate      bool     // see [guard]
}

// An Authorization obtains the access tokens for one server on behalf of one principal. All methods
// may be called concurrently. Its only goroutine is that of an attempt to obtain a token; see
// Options.Go.
type Authorization struct {
	Options
	discoverer
	key      string // in the Store
	attempts attempts

	mu         sync.Mutex
	grant      *Grant // nil = none
	generation int    // of its access token: the number of changes
	version    version
	checkedAt  time.Time // when version was compared with the Store
	challenge  challenge // of the last response that was refused
	needs      *LoginError
	changed    chan struct{} // closed and replaced when there is another grant
}

// New returns an Authorization. It reads nothing and sends nothing. URL must be valid.
func New(o Options) (*Authorization, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, errors.New("the url is not that of an HTTP server")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Command == "" {
		o.Command = "gateway login " + o.Name
	}
	if o.OnNeedsLogin == nil {
		o.OnNeedsLogin = func(*LoginError) {}
	}
	if o.OnSecret == nil {
		o.OnSecret = func(string) {}
	}
	if o.Go == nil {
		o.Go = func(f func(context.Context)) bool {
			go f(context.Background())
			return true
		}
	}
	g := newGuard(u, o.AllowPrivate, o.TLS)
	return &Authorization{
		Options: o, key: key(o.Name, o.URL, o.Principal),
		discoverer: discoverer{server: u, guard: g, http: g.client()},
		attempts:   attempts{start: o.Go}, changed: make(chan struct{}),
	}, nil
}

// A LoginError is the reason that a request was not executed: somebody has to log in first.
type LoginError struct {
	Backend string
	Command string   // with which the user logs in
	Reason  string   // why; a text without secrets
	Scopes  []string // the scopes that are missing; nil = all

	generation int // of the access token for which it is the reason
}

func (e *LoginError) Error() string {
	if e.Scopes != nil {
		return fmt.Sprintf("it needs a login with more rights (%s): %s", e.Reason, e.Command)
	}
	return fmt.Sprintf("it needs a login (%s): %s", e.Reason, e.Command)
}

func (a *Authorization) loginError(reason string) *LoginError {
	return &LoginError{Backend: a.Name, Command: a.Command, Reason: reason}
}

// NeedsLogin returns the reason that somebody has to log in before a request can succeed; nil = no
// such reason is known. It does not block.
func (a *Authorization) NeedsLogin() *LoginError {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.needs
}

// storeInterval is the longest time for which a change of the Store by another process can remain
// unnoticed, except by a request that was refused.
const storeInterval = time.Second

// current returns the grant, nil if there is none. It reads the Store if another Authorization has
// changed it. It looks for a change at most once in storeInterval, but always if now is set.
func (a *Authorization) current(now bool) (*Grant, error) {
	a.mu.Lock()
	g, known, first := a.grant, a.version, a.checkedAt.IsZero()
	due := !a.ClientCredentials &&
		(now || first || time.Since(a.checkedAt) >= storeInterval)
	if due {
		a.checkedAt = time.Now()
	}
	a.mu.Unlock()
	if !due {
		return g, nil
	}
	v := a.Store.version(a.key)
	if !first && v.equal(known) {
		return g, nil
	}
	g, err := a.Store.load(a.key)
	if err != nil {
		return nil, err
	}
	if id := a.ClientID; g != nil && id != "" && g.Client.ID != id {
		g = nil // the login of a client that is no longer configured
	}
	a.maskGrant(g)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != known { // another goroutine has read or saved a newer grant
		return a.grant, nil
	}
	a.setLocked(g, v)
	return g, nil
}

// setLocked makes g the current grant. The caller has called maskGrant, without the lock.
func (a *Authorization) setLocked(g *Grant, v version) {
	if a.grant.access() != g.access() {
		a.generation++
		if g.access() != "" {
			a.needs = nil
		}
	}
	a.grant, a.version = g, v
	close(a.changed)
	a.changed = make(chan struct{})
}

// maskGrant passes the secrets of g to OnSecret. g may be nil.
func (a *Authorization) maskGrant(g *Grant) {
	if g != nil {
		a.mask(g.Secrets.Access, g.Secrets.Refresh, g.Secrets.ClientSecret)
	}
}

// mask passes secrets to OnSecret, except "".
func (a *Authorization) mask(secrets ...string) {
	for _, secret := range secrets {
		if secret != "" {
			a.OnSecret(secret)
		}
	}
}

// save makes g the current grant, and stores it, except the token of a client that needs no login.
// If g cannot be stored, it is used nevertheless.
func (a *Authorization) save(g *Grant) (err error) {
	a.maskGrant(g)
	var v version
	if !a.ClientCredentials {
		err = a.Store.save(a.key, g)
		v = a.Store.version(a.key)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setLocked(g, v)
	return err
}

// Token returns the access token for the next request, "" if there is none. A token that expires
// soon is still returned, and refreshed meanwhile. If it has expired, Token blocks until it is
// refreshed, and returns an error, for example a *LoginError, if that fails.
func (a *Authorization) Token(ctx context.Context) (string, error) {
	g, err := a.current(false)
	switch {
	case err != nil:
		return "", err
	case g == nil:
		return "", nil
	case g.fresh(time.Now()) || !a.canRefresh(g):
		return g.Secrets.Access, nil
	}
	old := g.Secrets.Access
	refresh := a.notingLogin(func(ctx context.Context) error { return a.refresh(ctx, old) })
	if !g.expired(time.Now()) {
		a.attempts.begin(old, refresh)
		return old, nil
	}
	if err := a.attempts.share(ctx, old, refresh); errors.Is(err, errTooOften) {
		return old, nil // the server decides whether it has expired
	} else if err != nil {
		return "", err
	}
	if g, err = a.current(false); err != nil || g == nil {
		return "", err
	}
	return g.Secrets.Access, nil
}

// canRefresh reports whether a new token can be obtained without a login.
func (a *Authorization) canRefresh(g *Grant) bool {
	return g.Secrets.Refresh != "" || a.ClientCredentials
}

// errNotOAuth is the error of reauthorize if the server does not use OAuth, as far as can be seen.
var errNotOAuth = errors.New("the server does not use OAuth, so nobody needs to log in: " +
	"gateway check shows its state")

// Refused is called when the server has refused a request that was sent with token, "" = without,
// and has not executed it. If there is another token by now, or if one can be obtained without a
// login, again is true: the request can be sent again with that token. Otherwise err is a
// *LoginError, or another error, for example of the authorization server. err is nil if the
// response is not about OAuth: its status is neither 401 nor 403 with the challenge
// insufficient_scope, or the server does not use OAuth, as far as can be seen. Refused reads only
// the header of resp. It blocks while it asks the authorization server.
func (a *Authorization) Refused(ctx context.Context, token string, resp *http.Response) (
	again bool, err error,
) {
	ch := readChallenge(resp)
	isForbidden := resp.StatusCode == http.StatusForbidden
	if isForbidden && ch.code != "insufficient_scope" ||
		!isForbidden && resp.StatusCode != http.StatusUnauthorized {
		return false, nil
	}
	a.mu.Lock()
	a.challenge = ch
	a.mu.Unlock()
	g, err := a.current(true)
	switch {
	case err != nil:
		return false, err
	case g != nil && g.Secrets.Access != token && !g.expired(time.Now()):
		return true, nil
	case isForbidden && g != nil:
		err = a.stepUp(ctx, g, token, ch)
	default:
		obtain := func(ctx context.Context) error { return a.reauthorize(ctx, token, ch) }
		if !isForbidden { // else only this request needs a login
			obtain = a.notingLogin(obtain)
		}
		err = a.attempts.share(ctx, token, obtain)
	}
	if errors.Is(err, errNotOAuth) || errors.Is(err, errTooOften) {
		return false, nil
	}
	return err == nil, err
}

// RequireLogin records that no request can succeed because of why, until there is another token:
// NeedsLogin returns why. It is called when the server refuses a connection that needs more rights.
func (a *Authorization) RequireLogin(why *LoginError) { a.noteLogin(why) }

// notingLogin returns obtain with one addition: if it fails with a *LoginError, NeedsLogin returns
// that from now on.
func (a *Authorization) notingLogin(
	obtain func(context.Context) error,
) func(context.Context) error {
	return func(ctx context.Context) error {
		generation := a.currentGeneration()
		err := obtain(ctx)
		if login, is := errors.AsType[*LoginError](err); is {
			login.generation = generation
			if !a.noteLogin(login) {
				return nil
			}
		}
		return err
	}
}

func (a *Authorization) currentGeneration() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.generation
}

// noteLogin lets NeedsLogin return why from now on. It reports false, and does nothing, if somebody
// has logged in since.
func (a *Authorization) noteLogin(why *LoginError) bool {
	a.mu.Lock()
	isLate := a.grant.access() != "" && a.generation != why.generation
	begins := a.needs == nil
	if !isLate {
		a.needs = why
	}
	a.mu.Unlock()
	if begins && !isLate {
		a.OnNeedsLogin(why)
	}
	return !isLate
}

// reauthorize obtains a token in place of one that was refused, "" = none. It fetches the metadata
// first, because the authorization server may have changed.
func (a *Authorization) reauthorize(ctx context.Context, token string, ch challenge) error {
	g, err := a.current(true)
	switch {
	case err != nil:
		return err
	case g == nil:
		return a.authorize(ctx, ch)
	case g.Secrets.Access != token && !g.expired(time.Now()):
		return nil // another process has refreshed it
	}
	m, err := a.discover(ctx, ch, g.Issuer)
	switch {
	case err != nil:
		a.Log.Debug("authorization server not checked before the refresh", "err", err)
	case a.ClientCredentials:
		return a.clientCredentials(ctx, m, a.requestedScopes(m, ch, g))
	case m.server.Issuer != g.Issuer && !m.assumed: // assumed: they may be unavailable briefly
		return a.loginError("the server has changed its authorization server to " +
			shown(m.server.Issuer))
	}
	return a.refresh(ctx, token)
}

// authorize obtains the first token, if that needs no login. The error says otherwise what is
// needed.
func (a *Authorization) authorize(ctx context.Context, ch challenge) error {
	m, err := a.discover(ctx, ch, "")
	switch {
	case err != nil:
		return fmt.Errorf("it needs OAuth: %w", err)
	case m.assumed && a.isUnconfigured():
		return errNotOAuth
	case !a.ClientCredentials:
		return a.loginError("nobody is logged in")
	}
	return a.clientCredentials(ctx, m, a.requestedScopes(m, ch, nil))
}

// isUnconfigured reports whether the user has configured nothing about OAuth.
func (a *Authorization) isUnconfigured() bool {
	return a.ClientID == "" && a.ClientMetadataURL == "" && a.Scopes == nil
}

// stepUp obtains a token with the scopes of a challenge insufficient_scope, in addition to those
// that were granted. With client credentials it asks for them; otherwise somebody has to log in.
func (a *Authorization) stepUp(ctx context.Context, g *Grant, token string, ch challenge) error {
	generation := a.currentGeneration()
	if isSubset(ch.scopes, g.Scopes) {
		return fmt.Errorf("the server refuses the granted scopes %s: "+
			"give the account more rights at the server", shownScopes(g.Scopes))
	}
	if a.ClientCredentials {
		return a.attempts.share(ctx, "scopes "+token, func(ctx context.Context) error {
			m, err := a.discover(ctx, ch, g.Issuer)
			if err != nil {
				return err
			}
			return a.clientCredentials(ctx, m, wantedScopes(g, ch.scopes))
		})
	}
	if err := a.storeWanted(ctx, g, ch.scopes); err != nil {
		a.Log.Warn("missing scopes not stored", "err", err)
	}
	login := a.loginError("missing scopes: " + shownScopes(ch.scopes))
	login.Scopes, login.generation = ch.scopes, generation
	return login
}

// wantedScopes returns the scopes to request at the next login, so that it has scopes, and all that
// were granted and demanded before.
func wantedScopes(g *Grant, scopes []string) []string {
	all := union(g.Scopes, scopes, g.Wanted)
	return all[:min(len(all), len(g.Scopes)+maxScopes)]
}

// storeWanted stores the scopes that the server has demanded, for the next login. It changes the
// grant only while no other process does, because that process may replace the refresh token.
func (a *Authorization) storeWanted(ctx context.Context, g *Grant, scopes []string) error {
	if isSubset(scopes, g.Wanted) {
		return nil
	}
	unlock, err := a.Store.lock(ctx, a.key)
	if err != nil {
		return err
	}
	defer unlock()
	if g, err = a.current(true); err != nil || g == nil || isSubset(scopes, g.Wanted) {
		return err
	}
	next := *g
	next.Wanted = wantedScopes(g, scopes)
	return a.save(&next)
}

// shownScopes returns scopes for an error, quoted and bounded.
func shownScopes(scopes []string) string {
	return fmt.Sprintf("%q", text.Truncate(strings.Join(scopes, " "), maxShown))
}
