package resourceserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

const (
	// refreshInterval is the time after which the keys are read again.
	refreshInterval = 15 * time.Minute
	// firstRetry and lastRetry are the shortest and the longest pause after a failed attempt.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// unknownKeyInterval and unknownKeyBurst bound the attempts to find a key that is not known.
	unknownKeyInterval, unknownKeyBurst = 10 * time.Second, 5
	// failureLogInterval is the minimum time between two log records about the same failure.
	failureLogInterval = 10 * time.Minute
	// newFailureLogInterval is the minimum time between two log records about any failures.
	newFailureLogInterval = 10 * time.Second
)

// A provider knows the metadata and keys of an authorization server. At most one exchange with the
// server is in progress; all that need its result wait for it.
type provider struct {
	ctx         context.Context // of all requests
	issuer      string
	client      *http.Client
	log         *slog.Logger
	unknownKeys *rate.Limiter

	mu       sync.Mutex
	current  *issuerState  // nil = nothing was read yet
	loading  chan struct{} // closed at the end of the exchange in progress; nil = none
	failure  error         // error of the last exchange; nil = none
	failures int           // failed exchanges since the last successful one
	nextTry  time.Time     // after a failure: time of the next attempt
	logged   time.Time     // time of the last log record about a failure
	reason   string        // failure in this record
}

// An issuerState is what a provider knows at a time. It is immutable.
type issuerState struct {
	metadata serverMetadata
	keys     keySet
}

// serverMetadata are the members of the metadata of an authorization server (RFC 8414) that are
// used.
type serverMetadata struct {
	Issuer        string `json:"issuer"`
	KeysURL       string `json:"jwks_uri"`
	Introspection string `json:"introspection_endpoint"`
}

func newProvider(ctx context.Context, o *Options) *provider {
	return &provider{
		ctx: ctx, issuer: o.Issuer, log: o.Log, client: newClient(o.Issuer, o.AllowPrivate),
		unknownKeys: rate.NewLimiter(rate.Every(unknownKeyInterval), unknownKeyBurst),
	}
}

// keepCurrent reads the metadata and keys, again after refreshInterval or after a failure, until
// ctx is done.
func (p *provider) keepCurrent(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := refreshInterval
		if _, err := p.load(ctx, nil); err != nil {
			wait = max(firstRetry, p.untilNextTry())
		}
		timer.Reset(wait)
	}
}

func (p *provider) untilNextTry() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.nextTry)
}

// state returns the metadata and keys. If they are not known yet, it reads them, unless an
// attempt has just failed.
func (p *provider) state(ctx context.Context) (*issuerState, error) {
	p.mu.Lock()
	s := p.current
	p.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return p.loadIfDue(ctx, nil)
}

// loadIfDue calls load, unless an attempt has just failed.
func (p *provider) loadIfDue(ctx context.Context, known *issuerState) (*issuerState, error) {
	p.mu.Lock()
	failure, wait := p.failure, time.Until(p.nextTry)
	p.mu.Unlock()
	if failure != nil && wait > 0 {
		return nil, p.unavailable(wait)
	}
	return p.load(ctx, known)
}

// verify verifies a signature and returns the key. If the key is not known, it reads the keys
// again, as often as unknownKeys permits.
func (p *provider) verify(ctx context.Context, jws *jose.JSONWebSignature, header jose.Header) (
	*publicKey, error) {
	s, err := p.state(ctx)
	if err != nil {
		return nil, err
	}
	key, found := s.keys.verify(jws, header)
	if key == nil && !found {
		if !p.isReplaced(s) && !p.unknownKeys.Allow() {
			return nil, &UnavailableError{
				Reason: fmt.Sprintf("the access token is signed with a key that %s has not "+
					"published; the gateway looks for new keys again in a few seconds", p.issuer),
				RetryAfter: unknownKeyInterval,
			}
		}
		if s, err = p.loadIfDue(ctx, s); err != nil {
			return nil, err
		}
		key, found = s.keys.verify(jws, header)
	}
	switch {
	case key != nil:
		return key, nil
	case !found:
		return nil, invalid("the access token is signed with a key that %s has not published",
			p.issuer)
	}
	return nil, invalid("the signature of the access token is not valid")
}

// isReplaced reports whether s is no longer the current state, or soon will be replaced.
func (p *provider) isReplaced(s *issuerState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current != s || p.loading != nil
}

// load reads the metadata and keys, or waits for the exchange in progress, and returns the result.
// If there already is a newer state than known, load returns that at once; known may be nil.
func (p *provider) load(ctx context.Context, known *issuerState) (*issuerState, error) {
	p.mu.Lock()
	if known != nil && p.current != known {
		defer p.mu.Unlock()
		return p.current, nil
	}
	if done := p.loading; done != nil {
		p.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, p.unavailable(firstRetry)
		}
		return p.result()
	}
	done := make(chan struct{})
	p.loading = done
	old := p.current
	p.mu.Unlock()

	// The exchange continues if the client disconnects, because others may wait for its result.
	next, err := p.read(old)
	p.finish(next, err)
	close(done)
	return p.result()
}

// result returns the outcome of the last exchange.
func (p *provider) result() (*issuerState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return nil, p.unavailable(max(firstRetry, time.Until(p.nextTry)))
	}
	return p.current, nil
}

// unavailable returns the error for clients when the authorization server does not answer as it
// should. It does not contain the failure, which may name internal addresses: see logFailure.
func (p *provider) unavailable(wait time.Duration) *UnavailableError {
	return &UnavailableError{
		Reason: fmt.Sprintf("the gateway cannot verify access tokens now, because the "+
			"authorization server %s is not available; try again later, or ask the operator of the "+
			"gateway, whose log has the reason", p.issuer),
		RetryAfter: wait,
	}
}

// read reads the metadata and keys.
func (p *provider) read(old *issuerState) (*issuerState, error) {
	ctx, cancel := context.WithTimeout(p.ctx, fetchTimeout)
	defer cancel()
	m, err := p.readMetadata(ctx)
	if err != nil {
		return nil, err
	}
	if m.KeysURL == "" { // all tokens are opaque
		if old != nil {
			old.keys.replacedBy(nil)
		}
		return &issuerState{metadata: *m}, nil
	}
	text, err := get(ctx, p.client, m.KeysURL)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.KeysURL, err)
	}
	if old != nil {
		keys = old.keys.replacedBy(keys)
	}
	return &issuerState{*m, keys}, nil
}

// readMetadata reads the metadata of the issuer from the first URL that has them.
func (p *provider) readMetadata(ctx context.Context) (*serverMetadata, error) {
	var failure error
	for _, address := range metadataURLs(p.issuer) {
		text, err := get(ctx, p.client, address)
		if err == nil {
			var m *serverMetadata
			if m, err = p.parseMetadata(address, text); err == nil {
				return m, nil
			}
		}
		status, isStatus := errors.AsType[*httpStatusError](err)
		if failure == nil || !isStatus || status.status != http.StatusNotFound {
			failure = err
		}
		if text == nil && !isStatus || isStatus && status.status >= 500 {
			break // the server is not available
		}
	}
	return nil, failure
}

func (p *provider) parseMetadata(address string, text []byte) (*serverMetadata, error) {
	m := &serverMetadata{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: the metadata are not a JSON object", address)
	}
	if m.Issuer != p.issuer {
		return nil, fmt.Errorf("%s: the metadata have another issuer; compare it with "+
			"auth.oauth.issuer, character by character", address)
	}
	for _, endpoint := range []string{m.KeysURL, m.Introspection} {
		if endpoint != "" {
			if err := checkEndpoint(p.issuer, endpoint); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// finish records the result of an exchange and logs changes.
func (p *provider) finish(next *issuerState, err error) {
	p.mu.Lock()
	failed := p.failures
	p.loading, p.failure = nil, err
	if err == nil {
		p.current, p.failures, p.nextTry = next, 0, time.Time{}
	} else {
		p.nextTry = time.Now().Add(min(lastRetry, firstRetry<<min(p.failures, 10)))
		p.failures++
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		p.logFailure(err)
	case failed > 0:
		p.log.Info("authorization server available", "server", p.issuer)
	}
}

// logFailure logs a failed request: the same failure at most once within failureLogInterval, and
// another one after newFailureLogInterval.
func (p *provider) logFailure(err error) {
	p.mu.Lock()
	interval := failureLogInterval
	if err.Error() != p.reason {
		interval = newFailureLogInterval
	}
	due := time.Since(p.logged) >= interval && p.ctx.Err() == nil
	if due {
		p.logged, p.reason = time.Now(), err.Error()
	}
	p.mu.Unlock()
	if due {
		p.log.Warn("authorization server not available", "server", p.issuer, "err", err)
	}
}
