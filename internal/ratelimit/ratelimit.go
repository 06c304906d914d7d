// Package ratelimit limits the requests of clients per time: those of a token, of a profile, and
// those to a backend. Several limits apply to one request
// together.
//
// Each limit has two token buckets (golang.org/x/time/rate): one for calls, and a larger one for
// requests that follow up a call. A [RateLimiter] takes from the buckets of all limits of a request
// under one lock, or from none.
package ratelimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/principal"
)

// A RateLimiter contains the limits. The zero value has none. A nil *RateLimiter has none either,
// and no method other than Take may be called on it. All methods may be called concurrently, and do
// not block.
type RateLimiter struct {
	inUse atomic.Bool // there are limits

	mu       sync.Mutex
	tokens   limitTable // by principal.Principal.Key
	profiles limitTable
	backends limitTable
}

// A RequestKind is a kind of requests that have a limit of their own.
type RequestKind uint8

const (
	Call RequestKind = iota
	// FollowUp is the kind of a request about something that an earlier request has begun: a task
	// or a subscription. A limit of their own keeps polls from using up the limit of calls, and
	// calls from keeping a client from the result of its task.
	FollowUp
)

// The limit of requests that follow up is followUpFactor times the limit of calls, but at least
// minFollowUpRate per second and minFollowUpBurst at once, so that a client with a low limit can
// still poll its tasks.
const (
	followUpFactor   = 10
	minFollowUpRate  = 10
	minFollowUpBurst = 100
)

// A Refusal is the error of a request that exceeds a limit.
type Refusal struct {
	// Wait is the time after which the request passes if no other request is sent: positive, and a
	// multiple of a millisecond.
	Wait time.Duration
	// Unlogged is the number of requests that this limit has refused since a Refusal was last to be
	// logged, with this one; 0 = the Refusal is not to be logged.
	Unlogged int

	what  string
	limit config.RateLimit
}

// Error describes the limit, and when to try again. The text may be shown to the client.
func (r *Refusal) Error() string {
	return fmt.Sprintf("the rate limit of %s (%s) is reached: try again in %v", r.what,
		r.limit, r.Wait)
}

// SetTokens replaces the limits of the tokens, by principal.Principal.Key. A changed limit keeps
// its level; this also holds for the other two methods.
func (l *RateLimiter) SetTokens(rates map[string]config.Rate) {
	l.set(func(now time.Time) {
		l.tokens = l.tokens.with(rates, now, func(string) string { return "this token" })
	})
}

// SetProfiles replaces the limits of the profiles, by name.
func (l *RateLimiter) SetProfiles(rates map[string]config.Rate) {
	l.set(func(now time.Time) {
		l.profiles = l.profiles.with(rates, now, func(name string) string {
			return "profile " + name
		})
	})
}

// SetBackends replaces the limits of the backends, by name.
func (l *RateLimiter) SetBackends(rates map[string]config.Rate) {
	l.set(func(now time.Time) {
		l.backends = l.backends.with(rates, now, func(string) string { return "this backend" })
	})
}

func (l *RateLimiter) set(change func(now time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(time.Now())
	l.inUse.Store(len(l.tokens)+len(l.profiles)+len(l.backends) > 0)
}

// Take counts a request of a client for the limits of its principal, of the profiles of the
// principal, and of the backend; "" = the request is not for a single backend. If one of the limits
// is reached, the request counts for none of them, and the result is a Refusal: the one with the
// longest wait. Without limits, Take does not lock.
func (l *RateLimiter) Take(p *principal.Principal, backend string, kind RequestKind) *Refusal {
	if l == nil || !l.inUse.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // with mu locked: a bucket that went back in time would fill twice
	var few [8]*limit
	limits := l.limitsOf(p, backend, few[:0])
	var longest *limit
	var wait time.Duration
	for _, one := range limits {
		if w := one.wait(kind, now); w > wait {
			longest, wait = one, w
		}
	}
	if longest != nil {
		return longest.refuse(wait, now)
	}
	for _, one := range limits {
		one.take(kind, now)
	}
	return nil
}

// limitsOf appends the limits that apply to a request.
func (l *RateLimiter) limitsOf(p *principal.Principal, backend string, all []*limit) []*limit {
	if one := l.tokens[p.Key()]; one != nil {
		all = append(all, one)
	}
	if len(l.profiles) > 0 {
		for _, name := range p.Profiles() {
			if one := l.profiles[name]; one != nil {
				all = append(all, one)
			}
		}
	}
	if one := l.backends[backend]; one != nil {
		all = append(all, one)
	}
	return all
}
