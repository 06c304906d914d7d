package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"mcpgateway/internal/resourceserver"
)

// authenticate returns the sender of a request, and marks its connection as admitted. profile is
// the profile in the path. authenticate may wait for the authorization server, but not for a token
// of the configuration.
func (a *accessControl) authenticate(r *http.Request, profile string) (sender, *httpError) {
	policy := a.policy.Load()
	if policy.isOpen() {
		markAdmitted(r)
		return sender{}, nil
	}
	token := bearerToken(r)
	from, herr := sender{}, (*httpError)(nil)
	switch c := policy.credentialOf(token); {
	case c != nil && c.isExpired(time.Now()):
		herr = expiredToken(c)
	case c != nil:
		from.Principal = c.principal
	case policy.oauth != nil && token != "":
		from, herr = verifyAccessToken(policy.oauth, r, token, profile)
	case token != "":
		herr = invalidToken()
	default:
		herr = policy.missingToken(r.Header.Get("Authorization") != "")
	}
	if herr != nil {
		return sender{}, policy.withChallenge(herr, token != "", profile)
	}
	markAdmitted(r)
	return from, nil
}

// withChallenge adds the header WWW-Authenticate to an error with status 401, unless the error has
// one. withToken is true if the request has a token.
func (r *accessPolicy) withChallenge(
	herr *httpError, withToken bool, profile string,
) *httpError {
	if herr.status != http.StatusUnauthorized || herr.header != nil {
		return herr
	}
	challenge := "Bearer"
	if r.oauth != nil {
		var err error
		if withToken {
			err = &resourceserver.InvalidTokenError{Reason: herr.err.Message}
		}
		challenge = r.oauth.Challenge(err, profile)
	}
	return herr.withHeader("WWW-Authenticate", challenge)
}

// verifyAccessToken verifies an access token of the authorization server.
func verifyAccessToken(v *resourceserver.Verifier, r *http.Request, token, profile string) (
	sender, *httpError) {
	verified, err := v.Verify(r.Context(), token, profile)
	if err == nil {
		return sender{Principal: verified.Principal, verifier: v, expires: verified.Expires}, nil
	}
	if unavailable, ok := errors.AsType[*resourceserver.UnavailableError](err); ok {
		seconds := int((unavailable.RetryAfter + time.Second - 1) / time.Second)
		return sender{}, newHTTPError(http.StatusServiceUnavailable,
			"Service unavailable: %v", err).retryAfter(seconds)
	}
	herr := newHTTPError(http.StatusUnauthorized, "Unauthorized: %v", err)
	_, noScope := errors.AsType[*resourceserver.ScopeError](err)
	_, noProfile := errors.AsType[*resourceserver.NoProfileError](err)
	if noScope || noProfile {
		herr = newHTTPError(http.StatusForbidden, "Forbidden: %v", err)
	}
	return sender{}, herr.withHeader("WWW-Authenticate", v.Challenge(err, profile))
}

// checkQuery returns an error if a request has a token in its URL (RFC 6750 §2.3). URLs are in the
// logs of proxies and in the history of browsers.
func checkQuery(r *http.Request) *httpError {
	if r.URL.RawQuery != "" && r.URL.Query().Has("access_token") {
		return newHTTPError(http.StatusBadRequest, "Bad request: the URL contains access_token; "+
			"send the token in the header Authorization: Bearer TOKEN, and replace the token, "+
			"because URLs are logged")
	}
	return nil
}

// bearerToken returns the token in the header Authorization; "" if there is no bearer token.
func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// expiredToken is the error for a request with a token that has expired.
func expiredToken(c *credential) *httpError {
	which := ""
	if c.name != "" {
		which = " " + c.name
	}
	return newHTTPError(http.StatusUnauthorized,
		"Unauthorized: the token%s expired at %s; ask the operator of the gateway for a new one",
		which, c.expires.UTC().Format(time.RFC3339))
}

// unknownProfile is the error for a request at the path of a profile that does not exist.
func unknownProfile() *httpError {
	return newHTTPError(http.StatusNotFound, "Not found: there is no profile of this name in the "+
		"configuration; check the path, or add the profile")
}

// missingToken is the error for a request without a bearer token. withHeader is true if the request
// has the header Authorization.
func (r *accessPolicy) missingToken(withHeader bool) *httpError {
	what, login := "", ""
	if withHeader {
		what = "the header Authorization has no bearer token; "
	}
	if r.oauth != nil {
		login = "log in at " + r.oauth.Issuer() + ", or "
	}
	return newHTTPError(http.StatusUnauthorized,
		"Unauthorized: %s%ssend the header Authorization: Bearer TOKEN", what, login)
}

// invalidToken is the error for a request whose token is invalid or was removed after the check.
func invalidToken() *httpError {
	return newHTTPError(http.StatusUnauthorized,
		"Unauthorized: the token in the header Authorization is not in auth.tokens; "+
			"check it, or ask the operator of the gateway for a new one")
}

// credentialOf returns the credential with this token; nil = the token is not configured. It
// compares the token with every configured token, so that the elapsed time reveals nothing.
func (r *accessPolicy) credentialOf(token string) *credential {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range r.tokens {
		same := subtle.ConstantTimeCompare(sum[:], r.tokens[i].sum[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 || token == "" {
		return nil
	}
	return &r.tokens[found]
}
