package httpserver

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/quota"
	"mcpgateway/internal/resourceserver"
)

// AccessRules determine who may use a [Server].
type AccessRules struct {
	Tokens []StaticToken // accepted bearer tokens
	// OAuth verifies access tokens of an authorization server; nil = none are accepted. If there
	// are no Tokens either, there is no authentication. Run runs the Verifier.
	OAuth *resourceserver.Verifier
	// Origins are allowed origins of browser pages, in addition to the gateway's own origin and, if
	// there is authentication and the listener is on loopback, to loopback origins.
	Origins []string
	Hosts   []string // host names of the gateway, in addition to loopback names
	// Profiles are the names that may follow /mcp/ and /sse/ in the path.
	Profiles []string
}

// A StaticToken is a bearer token of the configuration. The Server keeps only its hash.
type StaticToken struct {
	Text    string
	Name    string    // unique among the tokens; "" = no name
	Profile string    // name of the profile that the token selects; "" = none
	Expires time.Time // zero = never
}

// An accessControl decides which HTTP requests are allowed, and which principal sends a request.
type accessControl struct {
	loopback bool   // Options.Loopback
	via      string // Options.Via
	policy   atomic.Pointer[accessPolicy]
	// The policy was replaced: for awaitExpiry and for runVerifier. The capacity is 1.
	tokensUpdated, verifierUpdated chan struct{}

	updating   sync.Mutex // held by update
	lastNumber int        // highest number of a token so far; guarded by updating
}

// A sender is the authenticated sender of a request. The zero value is a sender without
// authentication.
type sender struct {
	*principal.Principal                          // nil without authentication
	verifier             *resourceserver.Verifier // has accepted the access token; nil = none
	expires              time.Time                // expiry of the access token; zero = none
	profile              string                   // in the path; "" = none
}

// accessPolicy contains the tokens, origins and hosts in force. It is immutable; see
// [Server.UpdateAccess].
type accessPolicy struct {
	tokens         []credential
	oauth          *resourceserver.Verifier // nil = no OAuth
	origins, hosts []string
	profiles       []string
}

// hasProfile reports whether the name of a profile in the path is valid; "" = there is none.
func (r *accessPolicy) hasProfile(name string) bool {
	return name == "" || slices.Contains(r.profiles, name)
}

// A credential is the hash of a token, and the principal to which the token belongs. An unchanged
// token keeps its principal when the policy is replaced.
type credential struct {
	sum       [sha256.Size]byte
	name      string
	profile   string
	expires   time.Time // zero = never
	principal *principal.Principal
}

// isExpired reports whether the token has expired at the time now.
func (c *credential) isExpired(now time.Time) bool {
	return !c.expires.IsZero() && !now.Before(c.expires)
}

// isOpen reports whether requests need no token.
func (r *accessPolicy) isOpen() bool { return len(r.tokens) == 0 && r.oauth == nil }

// includes reports whether requests of from are still allowed.
func (r *accessPolicy) includes(from sender) bool {
	switch {
	case !r.hasProfile(from.profile):
		return false
	case from.Principal == nil:
		return r.isOpen()
	case from.verifier != nil:
		return r.oauth == from.verifier
	}
	return slices.ContainsFunc(r.tokens, func(c credential) bool {
		return c.principal == from.Principal && !c.isExpired(time.Now())
	})
}

// multiPrincipal reports whether there are several principals, whose shares are limited.
func (r *accessPolicy) multiPrincipal() bool { return len(r.tokens) > 1 || r.oauth != nil }

// share returns the part of limit that one principal may use. If there are several principals, it
// is half of limit, so that one principal cannot use the whole limit.
func (r *accessPolicy) share(limit int) int {
	if r.multiPrincipal() {
		return quota.Half(limit)
	}
	return limit
}

// nextExpiry returns the earliest time after now at which a token expires; zero = none.
func (r *accessPolicy) nextExpiry(now time.Time) (next time.Time) {
	for _, c := range r.tokens {
		if c.expires.After(now) && (next.IsZero() || c.expires.Before(next)) {
			next = c.expires
		}
	}
	return next
}

// newAccessControl returns an accessControl with the policy given by the Options. A single token
// without a name has no number.
func newAccessControl(o *Options) *accessControl {
	a := &accessControl{
		loopback: o.Loopback, via: o.Via,
		tokensUpdated: make(chan struct{}, 1), verifierUpdated: make(chan struct{}, 1),
	}
	a.policy.Store(&accessPolicy{})
	a.replace(o.AccessRules, len(o.Tokens) > 1 || o.OAuth != nil)
	return a
}

// update replaces the policy. Tokens that are unchanged, except for their expiry, keep their
// principals.
func (a *accessControl) update(access AccessRules) {
	a.replace(access, true)
	for _, updated := range []chan struct{}{a.tokensUpdated, a.verifierUpdated} {
		select {
		case updated <- struct{}{}:
		default:
		}
	}
}

// replace replaces the policy. If numbered is true, new tokens without a name get a number that was
// not used before as their name.
func (a *accessControl) replace(access AccessRules, numbered bool) {
	a.updating.Lock()
	defer a.updating.Unlock()
	old := a.policy.Load()
	next := &accessPolicy{
		oauth: access.OAuth, origins: access.Origins, hosts: access.Hosts,
		profiles: access.Profiles,
	}
	for _, t := range access.Tokens {
		c := credential{sum: sha256.Sum256([]byte(t.Text)), name: t.Name, profile: t.Profile,
			expires: t.Expires}
		i := slices.IndexFunc(old.tokens, func(o credential) bool {
			return o.sum == c.sum && o.name == c.name && o.profile == c.profile
		})
		if i >= 0 {
			c.principal = old.tokens[i].principal
		} else {
			description := principal.TokenIdentity{Name: c.name, Sum: c.sum, Profile: c.profile,
				Only: len(access.Tokens) == 1 && access.OAuth == nil}
			a.lastNumber++
			if numbered {
				description.Number = a.lastNumber
			}
			c.principal = principal.FromToken(description)
		}
		next.tokens = append(next.tokens, c)
	}
	if next.multiPrincipal() {
		for _, c := range next.tokens {
			c.principal.NoteOthers()
		}
	}
	a.policy.Store(next)
}

// expiryCheckInterval is the longest time between two checks for expired tokens. A timer alone
// would be late after the machine was suspended.
const expiryCheckInterval = time.Minute

// awaitExpiry calls expired each time a token may have expired, until ctx is done.
func (a *accessControl) awaitExpiry(ctx context.Context, expired func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := time.Now(); ; {
		next := a.policy.Load().nextExpiry(last)
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(min(max(0, time.Until(next)), expiryCheckInterval))
		}
		select {
		case <-ctx.Done():
			return
		case <-a.tokensUpdated:
		case <-timer.C:
			if now := time.Now(); !now.Before(next) {
				last = now
				expired()
			}
		}
	}
}

// runVerifier runs the Verifier of the policy in force, until ctx is done.
func (a *accessControl) runVerifier(ctx context.Context) {
	for ctx.Err() == nil {
		current := a.policy.Load().oauth
		running, end := context.WithCancel(ctx)
		var done sync.WaitGroup
		if current != nil {
			done.Go(func() { current.Run(running) })
		}
		for a.policy.Load().oauth == current && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-a.verifierUpdated:
			}
		}
		end()
		done.Wait()
	}
}
