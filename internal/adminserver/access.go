package adminserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"mcpgateway/internal/adminapi"
)

// An AccessRule decides which requests of a listener are served. The zero value serves all: those
// of a socket that only this user can connect to.
type AccessRule struct {
	Token string // required as a bearer token; "" = none
}

// check returns the status and the text for a request that is refused, and nil for any other.
func (a AccessRule) check(r *http.Request) (int, *adminapi.APIError) {
	if a.Token == "" {
		return 0, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || !isEqual(strings.TrimSpace(token), a.Token) {
		return http.StatusUnauthorized, &adminapi.APIError{
			Text: "the admin token is missing or wrong",
			Hint: "send Authorization: Bearer TOKEN, with the token in the file admin-token of " +
				"the state directory",
		}
	}
	return 0, nil
}

// isEqual compares two tokens in constant time, also if their lengths differ.
func isEqual(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
