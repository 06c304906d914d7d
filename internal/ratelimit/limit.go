package ratelimit

import (
	"time"

	"golang.org/x/time/rate"

	"mcpgateway/internal/config"
)

// A limit is one limit with its level. It is guarded by RateLimiter.mu.
type limit struct {
	what             string // for errors: "this token"
	configured       config.Rate
	calls, followUps *rate.Limiter

	unlogged   int       // refusals since lastLogged
	lastLogged time.Time // zero = never
}

// newLimit returns a limit of which nothing is used.
func newLimit(what string, r config.Rate) *limit {
	return &limit{what: what, configured: r, calls: rate.NewLimiter(callSize(r)),
		followUps: rate.NewLimiter(followUpSize(r))}
}

// callSize returns the limit of calls per second, and at once.
func callSize(r config.Rate) (rate.Limit, int) { return rate.Limit(r.PerSecond()), r.Capacity() }

// followUpSize returns the limit of requests that follow up, per second and at once.
func followUpSize(r config.Rate) (rate.Limit, int) {
	perSecond, burst := callSize(r)
	return max(followUpFactor*perSecond, minFollowUpRate),
		max(followUpFactor*burst, minFollowUpBurst)
}

// configure changes the limit. What was used stays used: the level stays the same, or becomes the
// new burst if that is smaller.
func (l *limit) configure(r config.Rate, now time.Time) {
	if l.configured == r {
		return
	}
	l.configured = r
	perSecond, burst := callSize(r)
	l.calls.SetLimitAt(now, perSecond)
	l.calls.SetBurstAt(now, burst)
	perSecond, burst = followUpSize(r)
	l.followUps.SetLimitAt(now, perSecond)
	l.followUps.SetBurstAt(now, burst)
}

func (l *limit) bucket(kind RequestKind) *rate.Limiter {
	if kind == FollowUp {
		return l.followUps
	}
	return l.calls
}

// wait returns the time after which a request passes: 0 = now, otherwise a multiple of a
// millisecond. It is rounded up, and up again if it is whole, because the level is a floating-point
// number.
func (l *limit) wait(kind RequestKind, now time.Time) time.Duration {
	b := l.bucket(kind)
	missing := 1 - b.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	exact := time.Duration(missing / float64(b.Limit()) * float64(time.Second))
	return exact.Truncate(time.Millisecond) + time.Millisecond
}

// take counts a request. wait has returned 0 for it.
func (l *limit) take(kind RequestKind, now time.Time) { l.bucket(kind).AllowN(now, 1) }

// logInterval is the minimum time between two log records about a limit.
const logInterval = time.Minute

// refuse returns the error of a request that passes after wait.
func (l *limit) refuse(wait time.Duration, now time.Time) *Refusal {
	r := &Refusal{Wait: wait, what: l.what, limit: l.configured.Limit}
	l.unlogged++
	if l.lastLogged.IsZero() || now.Sub(l.lastLogged) >= logInterval {
		r.Unlogged, l.unlogged, l.lastLogged = l.unlogged, 0, now
	}
	return r
}
