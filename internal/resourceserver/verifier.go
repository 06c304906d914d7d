// Package resourceserver makes the gateway an OAuth 2.1 resource server: it verifies the access
// tokens that an authorization server has issued to clients, and describes the gateway to clients
// that look for that server (RFC 9728).
//
//	Verify ─ tokenCache                           verified before
//	       ├ verifyJWT ─ parse, claims.check      a JWT: issuer, audience and times
//	       │             provider.verify          then the signature, with the keys of the issuer
//	       └ introspector ─ claims.check          any other token: RFC 7662
//
// A [provider] reads the metadata of the authorization server and its keys, in the background (Run)
// and when a token needs them. Everything that comes from the authorization server is bounded in
// size and time, redirects are not followed, and its metadata lead to public addresses only. A
// token costs the authorization server at most one request; tokens with unknown keys cost it a few
// requests a minute, however many there are.
//
// Lock order: introspector.mu, then tokenCache.mu. provider.mu is never held together with another
// lock. No lock is held during requests.
package resourceserver

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/principal"
)

// Options configure a Verifier. Issuer and Audience are required.
type Options struct {
	// Issuer is the identifier of the authorization server, an https URL, or an http URL with a
	// loopback address. The claim iss must be equal to it.
	Issuer string
	// Audience is the URI of the gateway, which the claim aud must contain. At the path of a
	// profile the URI of the profile suffices: Audience, a slash and the name of the profile.
	Audience string
	// Scopes are the scopes that each token must have.
	Scopes []string
	// Profiles give profiles to tokens; see ProfileSelector. If there are selectors and none
	// applies to a token, the token is refused.
	Profiles []ProfileSelector
	// AllowPrivate permits endpoints at private addresses in the metadata of the authorization
	// server, in addition to those at the origin of the Issuer.
	AllowPrivate bool
	// ClientID and ClientSecret authenticate the gateway at the introspection endpoint. If they are
	// empty, only JWTs are accepted.
	ClientID, ClientSecret string

	Log *slog.Logger
}

// A VerifiedToken is the result of the verification of an access token.
type VerifiedToken struct {
	Principal *principal.Principal
	// Expires is the time from which the token is refused.
	Expires time.Time
}

// clockSkew is the difference that is tolerated between the clock of the authorization server and
// the clock of the gateway.
const clockSkew = time.Minute

// maxTokenBytes is the maximum length of an access token.
const maxTokenBytes = 16 << 10

// A Verifier verifies access tokens. Create it with New. Its methods may be called concurrently.
type Verifier struct {
	opts       Options
	ctx        context.Context // of all requests; done when Run has returned
	cancel     context.CancelFunc
	provider   *provider
	introspect *introspector // nil = only JWTs are accepted
	valid      tokenCache
}

// New returns a Verifier. It starts nothing and sends no request.
func New(o Options) *Verifier {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	v := &Verifier{opts: o, valid: tokenCache{max: maxCachedTokens}}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.provider = newProvider(v.ctx, &v.opts)
	if o.ClientID != "" {
		v.introspect = newIntrospector(v.ctx, &v.opts, v.provider, &v.valid)
	}
	return v
}

// Run reads the metadata and keys of the authorization server, tries again after failures, and
// looks for new keys from time to time. It returns when ctx is done. Then all requests to the
// authorization server end, and the Verifier cannot be used again.
func (v *Verifier) Run(ctx context.Context) {
	defer v.provider.client.CloseIdleConnections()
	defer v.cancel()
	defer context.AfterFunc(ctx, v.cancel)() // a request in flight must not delay the end
	v.provider.keepCurrent(ctx)
}

// Equal reports whether the Verifier has these options, except for the log.
func (v *Verifier) Equal(o Options) bool {
	return v.opts.Issuer == o.Issuer && v.opts.Audience == o.Audience &&
		slices.Equal(v.opts.Scopes, o.Scopes) && slices.Equal(v.opts.Profiles, o.Profiles) &&
		v.opts.AllowPrivate == o.AllowPrivate && v.opts.ClientID == o.ClientID &&
		v.opts.ClientSecret == o.ClientSecret
}

// Issuer returns the identifier of the authorization server.
func (v *Verifier) Issuer() string { return v.opts.Issuer }

// resource returns the URI of the gateway at the path of a profile; "" = without a profile.
func (o *Options) resource(profile string) string {
	if profile == "" {
		return o.Audience
	}
	return strings.TrimSuffix(o.Audience, "/") + "/" + profile
}

// Verify verifies an access token for a request. profile is the name of the profile in the path of
// the request; "" = there is none. If the token is not known yet, Verify may wait for the
// authorization server, at most for twice the fetchTimeout. An error is an
// *[InvalidTokenError], a *[ScopeError], a *[NoProfileError] or an *[UnavailableError]. No error
// contains a part of the token.
func (v *Verifier) Verify(ctx context.Context, token, profile string) (VerifiedToken, error) {
	if len(token) > maxTokenBytes {
		return VerifiedToken{}, invalid("the access token is longer than %d bytes", maxTokenBytes)
	}
	sum := sha256.Sum256([]byte(token))
	g, err := v.valid.get(sum, time.Now())
	if g == nil && err == nil {
		switch {
		case isJWT(token):
			if g, err = v.verifyJWT(ctx, token); err == nil {
				v.valid.add(sum, g)
			}
		case v.introspect != nil:
			g, err = v.introspect.verify(ctx, token, sum)
		default:
			err = invalid("the access token is not a JWT, and the gateway has no " +
				"auth.oauth.introspection for other tokens")
		}
	}
	if err != nil {
		return VerifiedToken{}, err
	}
	if resource := v.opts.resource(profile); !slices.Contains(g.audience, v.opts.Audience) &&
		!slices.Contains(g.audience, resource) {
		return VerifiedToken{}, wrongAudience(resource)
	}
	if !hasAll(g.Principal.Scopes(), v.opts.Scopes) {
		return VerifiedToken{}, &ScopeError{Required: v.opts.Scopes}
	}
	if len(v.opts.Profiles) > 0 && g.Principal.ProfileKey() == "" {
		return VerifiedToken{}, &NoProfileError{Scopes: v.opts.profileScopes()}
	}
	return g.VerifiedToken, nil
}

// hasAll reports whether scopes contain all required ones.
func hasAll(scopes, required []string) bool {
	for _, one := range required {
		if !slices.Contains(scopes, one) {
			return false
		}
	}
	return true
}
