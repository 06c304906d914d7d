package resourceserver

import (
	"fmt"
	"strings"
	"time"
)

// An InvalidTokenError is the error for a token that is not valid (status 401). Its text contains
// no text of the token.
type InvalidTokenError struct{ Reason string }

func (e *InvalidTokenError) Error() string { return e.Reason }

func invalid(format string, args ...any) *InvalidTokenError {
	return &InvalidTokenError{fmt.Sprintf(format, args...)}
}

// A ScopeError is the error for a valid token that does not have all required scopes (status 403).
type ScopeError struct{ Required []string }

func (e *ScopeError) Error() string {
	return "the access token needs the scopes " + strings.Join(e.Required, " ")
}

// A NoProfileError is the error for a valid token that no ProfileSelector applies to (status 403).
type NoProfileError struct{ Scopes []string } // scopes that give a profile

func (e *NoProfileError) Error() string {
	text := "none of the auth.oauth.profiles applies to the access token"
	if len(e.Scopes) > 0 {
		text += "; these scopes have a profile: " + strings.Join(e.Scopes, " ")
	}
	return text
}

// An UnavailableError is the error for a token that cannot be verified now, because the
// authorization server does not answer as it should (status 503). It says nothing about the token,
// and nothing about the failure, because clients that are not authenticated get it.
type UnavailableError struct {
	Reason     string
	RetryAfter time.Duration // time after which a new attempt makes sense
}

func (e *UnavailableError) Error() string { return e.Reason }
