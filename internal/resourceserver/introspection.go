package resourceserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// activeTTL is the longest time for which an active token is not introspected again. A revoked
	// token is accepted for at most this time.
	activeTTL = time.Minute
	// inactiveTTL is the time for which a token that is not active is not introspected again.
	inactiveTTL = 10 * time.Second
	// maxInactiveTokens is the maximum number of tokens that are known not to be active.
	maxInactiveTokens = 1000
	// maxIntrospections is the maximum number of introspection requests at the same time.
	maxIntrospections = 16
	// unlimitedExpiry is the time after which a token expires whose introspection response has no
	// exp. It bounds the time for which a stream stays open.
	unlimitedExpiry = time.Hour
)

// An introspector asks the authorization server about tokens (RFC 7662). A token that is being
// introspected is not introspected a second time.
type introspector struct {
	ctx      context.Context // of all requests
	opts     *Options
	provider *provider
	slots    chan struct{}
	active   *tokenCache // of the Verifier
	inactive tokenCache

	mu       sync.Mutex
	inFlight map[[sha256.Size]byte]*introspectionCall
}

// An introspectionCall is a request in flight.
type introspectionCall struct {
	done   chan struct{} // closed when result and err are valid
	result *cachedToken
	err    error
}

func newIntrospector(
	ctx context.Context, o *Options, p *provider, active *tokenCache,
) *introspector {
	return &introspector{
		ctx: ctx, opts: o, provider: p, active: active,
		slots:    make(chan struct{}, maxIntrospections),
		inactive: tokenCache{max: maxInactiveTokens},
		inFlight: make(map[[sha256.Size]byte]*introspectionCall),
	}
}

// verify verifies an opaque token.
func (i *introspector) verify(ctx context.Context, token string, sum [sha256.Size]byte) (
	*cachedToken, error) {
	one, isNew := i.begin(sum)
	if !isNew {
		select {
		case <-one.done:
			return one.result, one.err
		case <-ctx.Done():
			return nil, i.provider.unavailable(firstRetry)
		}
	}
	// The request continues if the client disconnects, because others may wait for its result.
	one.result, one.err = i.introspect(token)
	if err, ok := errors.AsType[*InvalidTokenError](one.err); ok {
		i.inactive.add(sum, &cachedToken{err: err, until: time.Now().Add(inactiveTTL)})
	} else if one.err == nil {
		i.active.add(sum, one.result)
	}
	i.mu.Lock()
	delete(i.inFlight, sum) // now the result is in a cache
	i.mu.Unlock()
	close(one.done)
	return one.result, one.err
}

// begin returns the introspection of a token that is in flight or has just ended, or a new one,
// which the caller must do.
func (i *introspector) begin(sum [sha256.Size]byte) (one *introspectionCall, isNew bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if one := i.inFlight[sum]; one != nil {
		return one, false
	}
	one = &introspectionCall{done: make(chan struct{})}
	now := time.Now()
	if _, one.err = i.inactive.get(sum, now); one.err == nil {
		one.result, one.err = i.active.get(sum, now)
	}
	if one.result != nil || one.err != nil {
		close(one.done)
		return one, false
	}
	i.inFlight[sum] = one
	return one, true
}

// introspect waits for a slot and asks the authorization server about a token.
func (i *introspector) introspect(token string) (*cachedToken, error) {
	ctx, cancel := context.WithTimeout(i.ctx, fetchTimeout)
	defer cancel()
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		err := errors.New("too many requests wait for it")
		i.provider.logFailure(err)
		return nil, i.provider.unavailable(firstRetry)
	}
	s, err := i.provider.state(ctx)
	if err != nil {
		return nil, err
	}
	text, err := i.request(ctx, s.metadata.Introspection, token)
	if err != nil {
		i.provider.logFailure(err)
		return nil, i.provider.unavailable(firstRetry)
	}
	return i.result(text)
}

// request sends an introspection request and returns its response.
func (i *introspector) request(ctx context.Context, endpoint, token string) ([]byte, error) {
	if endpoint == "" {
		return nil, errors.New("its metadata have no introspection_endpoint")
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint,
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// RFC 6749 §2.3.1
	r.SetBasicAuth(url.QueryEscape(i.opts.ClientID), url.QueryEscape(i.opts.ClientSecret))
	text, err := fetch(i.provider.client, r)
	if status, ok := errors.AsType[*httpStatusError](err); ok &&
		(status.status == http.StatusUnauthorized || status.status == http.StatusForbidden) {
		return nil, fmt.Errorf("%w: check auth.oauth.introspection", err)
	}
	return text, err
}

// result returns the result of an introspection.
func (i *introspector) result(text []byte) (*cachedToken, error) {
	c, err := parseClaims(text)
	switch {
	case err != nil:
		err = fmt.Errorf("its introspection response: %w", err)
		i.provider.logFailure(err)
		return nil, i.provider.unavailable(firstRetry)
	case string(c.all["active"]) != "true": // names of members are case-sensitive
		return nil, invalid("the access token is not active: it has expired, or was revoked; " +
			"request a new one")
	}
	now := time.Now()
	if err := c.check(i.opts, now, false); err != nil {
		return nil, err
	}
	if c.expires.IsZero() {
		c.expires = now.Add(unlimitedExpiry)
	}
	g := &cachedToken{VerifiedToken: c.verified(i.opts), audience: c.audience}
	g.until = g.Expires
	if latest := now.Add(activeTTL); latest.Before(g.until) {
		g.until = latest
	}
	return g, nil
}
