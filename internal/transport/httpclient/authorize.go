package httpclient

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// An Authorizer provides access tokens for the requests to one server. Its methods may be called
// concurrently, and may block while the Authorizer asks an authorization server.
type Authorizer interface {
	// Token returns the token for the next request; "" = none, the request is sent without.
	Token(ctx context.Context) (string, error)
	// Refused is called after a response with status 401 or 403 to a request that was sent with
	// token, "" = without. It reads only the header of resp. If again is true, the request is sent
	// again, with the token that Token then returns. If err is not nil, the request fails with it.
	// Otherwise the response is processed like any other.
	Refused(ctx context.Context, token string, resp *http.Response) (again bool, err error)
}

// An AuthorizationError is the error of a request for which the Authorizer has no access token. The
// server has not executed the request.
type AuthorizationError struct{ Err error }

func (e *AuthorizationError) Error() string { return e.Err.Error() }
func (e *AuthorizationError) Unwrap() error { return e.Err }

const (
	// maxRefusals bounds how often a request is sent again because its token was refused.
	maxRefusals = 3
	// maxRefusedBody bounds the announced length, in bytes, of a response with status 401 or 403
	// that is read so that its connection can be reused.
	maxRefusedBody = 64 << 10
)

// sentTokens are the access tokens that were sent last, which a server may repeat in its errors.
type sentTokens struct {
	mu     sync.Mutex
	latest []string // at most maxSentTokens, the last one first
}

// maxSentTokens bounds sentTokens.latest. Requests with earlier tokens have ended.
const maxSentTokens = 4

func (s *sentTokens) add(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.latest, token) {
		s.latest = slices.Insert(s.latest, 0, token)
		s.latest = s.latest[:min(len(s.latest), maxSentTokens)]
	}
}

// redact replaces the tokens in text.
func (s *sentTokens) redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range s.latest {
		text = strings.ReplaceAll(text, token, "***")
	}
	return text
}
