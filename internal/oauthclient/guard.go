package oauthclient

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"mcpgateway/internal/weburl"
)

// Bounds of a request for metadata, a registration, or a token.
const (
	requestTimeout = 10 * time.Second // from the request to the end of the response
	// maxResponse is in bytes. It is one less than the libraries read: they would use the
	// beginning of a longer response.
	maxResponse = 1<<20 - 1
)

// A guard sends the requests for metadata, registrations and tokens. Their URLs come from servers,
// so the guard sends a request only to a public address over https, with two exceptions: requests
// to the origin of the backend, which the user has configured, and all requests if allowPrivate is
// set. The address is checked when the connection is opened, after the name was resolved. If a
// proxy of the environment is used, only an address in the URL itself can be checked.
//
// Redirects are not followed, and a response of more than maxResponse bytes is an error.
type guard struct {
	server       string // origin of the backend
	allowPrivate bool
	own          http.RoundTripper // connects to the origin of the backend
	any          http.RoundTripper // connects to any address
	public       http.RoundTripper // connects only to public addresses, without a proxy
}

// newGuard returns the guard for the metadata of a server. config is the TLS of the backend; nil =
// default. Other servers are trusted by the same authorities, but do not get its certificate, and
// need not have its server name.
func newGuard(server *url.URL, allowPrivate bool, config *tls.Config) *guard {
	dialer := &net.Dialer{Timeout: requestTimeout}
	own := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: config,
		DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 256 << 10,
	}
	unchecked := own.Clone()
	if c := unchecked.TLSClientConfig; c != nil {
		c.ServerName, c.Certificates, c.GetClientCertificate = "", nil, nil
	}
	checked := unchecked.Clone()
	checked.Proxy = nil
	checked.DialContext = (&net.Dialer{Timeout: requestTimeout, Control: checkDial}).DialContext
	return &guard{server: weburl.Origin(server), allowPrivate: allowPrivate, own: own,
		any: unchecked, public: checked}
}

// client returns a client that sends its requests through the guard.
func (g *guard) client() *http.Client {
	return &http.Client{
		Transport: g,
		Timeout:   requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("redirects are not followed")
		},
	}
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	transport, err := g.transport(req)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxResponse}
	return resp, nil
}

// transport returns the transport for a request, or the reason that the request is not sent.
func (g *guard) transport(req *http.Request) (http.RoundTripper, error) {
	if err := g.check(req.URL); err != nil {
		return nil, err
	}
	if weburl.Origin(req.URL) == g.server {
		return g.own, nil
	}
	if g.allowPrivate {
		return g.any, nil
	}
	if proxy, err := http.ProxyFromEnvironment(req); proxy != nil && err == nil {
		return g.any, nil
	}
	return g.public, nil
}

// isTrusted reports whether requests to a URL may go to any address.
func (g *guard) isTrusted(u *url.URL) bool { return g.allowPrivate || weburl.Origin(u) == g.server }

// check returns the reason that a URL must not be used; nil = none can be seen in the URL itself.
func (g *guard) check(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the URL is not an http or https URL")
	case g.isTrusted(u):
		return nil
	case u.Scheme != "https":
		return errors.New("the URL is not https; oauth.allow_private: true permits it")
	}
	if weburl.IsPrivateHost(u.Hostname()) {
		return errNotPublic
	}
	return nil
}

// errNotPublic is the error of a request to an address that is not public.
var errNotPublic = errors.New("the URL leads to a private, local or reserved address; " +
	"oauth.allow_private: true permits it")

// checkDial implements Control of [net.Dialer]: it rejects addresses that are not public.
func checkDial(_, address string, _ syscall.RawConn) error {
	if !weburl.IsPublicAddrPort(address) {
		return errNotPublic
	}
	return nil
}

// A boundedBody is the body of a response, of which at most left more bytes can be read.
type boundedBody struct {
	io.ReadCloser
	left int
}

var errTooLong = fmt.Errorf("the response is longer than %d KiB", (maxResponse+1)>>10)

// Read implements [io.Reader]. It fails with errTooLong if the body is longer than the bound, and
// with errNoAnswer if its time is over: package oauth2 repeats only the text of an error.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		return 0, errTooLong
	}
	b.left -= n
	if isTimeout(err) {
		err = errNoAnswer
	}
	return n, err
}
