package resourceserver

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"mcpgateway/internal/weburl"
)

// An issuerTransport sends the requests to an authorization server. The user has configured the
// issuer, so that requests to its origin go to any address. All other URLs come from its metadata:
// requests to them go to public addresses only, unless allowPrivate is set. The address is checked
// when the connection is opened, after the name was resolved. If a proxy of the environment is
// used, only an address in the URL itself can be checked.
type issuerTransport struct {
	origin       string // of the issuer
	allowPrivate bool
	any          *http.Transport // connects to any address
	public       *http.Transport // connects only to public addresses, without a proxy
}

// errNotPublic is the error of a request to an address that is not public.
var errNotPublic = errors.New("the metadata lead to a private, local or reserved address; " +
	"auth.oauth.allow_private: true permits it")

// newClient returns the client for requests to the authorization server. It follows no redirects.
func newClient(issuer string, allowPrivate bool) *http.Client {
	t := &issuerTransport{allowPrivate: allowPrivate, any: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIntrospections,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	if u, err := url.Parse(issuer); err == nil {
		t.origin = weburl.Origin(u)
	}
	t.public = t.any.Clone()
	t.public.Proxy = nil
	t.public.DialContext = (&net.Dialer{Control: checkDial}).DialContext
	return &http.Client{
		Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// checkDial implements Control of [net.Dialer]: it rejects addresses that are not public.
func checkDial(_, address string, _ syscall.RawConn) error {
	if !weburl.IsPublicAddrPort(address) {
		return errNotPublic
	}
	return nil
}

// RoundTrip implements [http.RoundTripper].
func (t *issuerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.allowPrivate || weburl.Origin(r.URL) == t.origin {
		return t.any.RoundTrip(r)
	}
	if weburl.IsPrivateHost(r.URL.Hostname()) {
		return nil, errNotPublic
	}
	if proxy, err := http.ProxyFromEnvironment(r); proxy != nil && err == nil {
		return t.any.RoundTrip(r)
	}
	return t.public.RoundTrip(r)
}

// CloseIdleConnections is called by the method of the same name of [http.Client].
func (t *issuerTransport) CloseIdleConnections() {
	t.any.CloseIdleConnections()
	t.public.CloseIdleConnections()
}
