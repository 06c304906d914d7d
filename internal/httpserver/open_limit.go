package httpserver

import (
	"log/slog"
	"net/http"
	"time"

	"mcpgateway/internal/quota"
)

// An openLimit limits the number of open sessions, or of open requests without a session. The lock
// of the table that contains them guards it.
type openLimit struct {
	access *accessControl
	max    int // Options.MaxSessions
	log    *slog.Logger
	// Texts of the log record and of the error for an overload, and seconds until a retry.
	logMessage, message string
	retrySeconds        int

	counter     quota.Counter[string] // by key of the principal
	closing     bool                  // the Server shuts down
	lastWarning time.Time             // time of the last log record about an overload
}

// acquire counts one more item of from. It returns an error if a limit is reached, the Server
// shuts down, or the token of from was removed. Otherwise the item must be released from
// the counter.
func (l *openLimit) acquire(from sender) *httpError {
	policy := l.access.policy.Load()
	switch {
	case l.closing:
		return shuttingDown()
	case !policy.hasProfile(from.profile):
		return unknownProfile()
	case !policy.includes(from):
		return policy.withChallenge(invalidToken(), true, from.profile)
	}
	share := policy.share(l.max)
	switch l.counter.Acquire(from.Key(), l.max, share) {
	case quota.Total:
		return l.refuse(l.message, "max", l.max)
	case quota.PerKey:
		return l.refuse(l.message+" under this token",
			append([]any{"max", share}, from.LogAttrs()...)...)
	}
	return nil
}

// isFull reports whether acquire would fail because a limit is reached.
func (l *openLimit) isFull(from sender) bool {
	share := l.access.policy.Load().share(l.max)
	return l.counter.Check(from.Key(), l.max, share) != quota.None
}

// refuse returns the error for an overload and logs it, at most once per logThrottle.
func (l *openLimit) refuse(message string, attrs ...any) *httpError {
	if now := time.Now(); now.Sub(l.lastWarning) > logThrottle {
		l.lastWarning = now
		l.log.Warn(l.logMessage, attrs...)
	}
	return newHTTPError(http.StatusServiceUnavailable, "%s", message).retryAfter(l.retrySeconds)
}

func shuttingDown() *httpError {
	return newHTTPError(http.StatusServiceUnavailable, "The gateway is ending").retryAfter(2)
}
