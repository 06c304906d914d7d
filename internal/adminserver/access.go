package adminserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver/page"
	"mcpgateway/internal/weburl"
)

// An AccessRule decides which requests of a listener are served. The zero value serves all: those
// of a socket that only this user can connect to.
type AccessRule struct {
	Token string // required as a bearer token; "" = none
	// CheckBrowser refuses requests that a page of another site makes a browser send.
	CheckBrowser bool
	// Loopback is true if only this machine can reach the listener. The header Host must then have
	// a loopback name or one of Hosts: after DNS rebinding, a page of another site has the origin
	// of the gateway. Hosts are names with or without a port.
	Loopback bool
	Hosts    []string
	// Logins are the logins at the page, which is then served; nil = there is no page.
	Logins *page.Logins
}

// check returns the status and the text for a request that is refused, and nil for any other.
func (a AccessRule) check(r *http.Request, isLoggedIn bool) (int, *adminapi.APIError) {
	if a.CheckBrowser {
		if refused := a.checkBrowser(r); refused != nil {
			return http.StatusForbidden, refused
		}
	}
	if a.Token == "" || isLoggedIn {
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

// checkBrowser checks the headers Host, Origin and Sec-Fetch-Site.
func (a AccessRule) checkBrowser(r *http.Request) *adminapi.APIError {
	if refused := a.checkHost(r); refused != nil {
		return refused
	}
	for _, origin := range r.Header["Origin"] {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return &adminapi.APIError{Text: "a page of another site sends this request"}
		}
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return &adminapi.APIError{Text: "a page of another site sends this request"}
		}
	}
	return nil
}

// checkHost checks the header Host.
func (a AccessRule) checkHost(r *http.Request) *adminapi.APIError {
	if a.Loopback && !a.isOwnHost(r.Host) {
		return &adminapi.APIError{Text: "the header Host names another host",
			Hint: "if a proxy in front of the gateway has that name, add it to hosts in the " +
				"configuration"}
	}
	return nil
}

// isOwnHost reports whether a header Host certainly has a name of the gateway.
func (a AccessRule) isOwnHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return weburl.IsLoopback(name) || slices.ContainsFunc(a.Hosts, func(own string) bool {
		return strings.EqualFold(own, host) || strings.EqualFold(own, name)
	})
}

// isEqual compares two tokens in constant time, also if their lengths differ.
func isEqual(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
