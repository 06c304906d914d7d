package httpclient

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	retryable "github.com/hashicorp/go-retryablehttp"
)

// A httpTarget is where requests go and what each of them carries.
type httpTarget struct {
	url        *url.URL
	baseHeader http.Header // the configured headers
	pool       *http.Client
	secrets    []string          // what must not be shown
	redactor   *strings.Replacer // blots that out of a text
	jar        *cookieJar
	host       string // of the header Host; "" = that of url
	limit      int    // bytes of one message
}

// errNoURL has no more in it than that, for a URL may hold secrets.
var errNoURL = errors.New("the url is not that of an HTTP server")

func newTarget(o Options) (*httpTarget, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errNoURL
	}
	s := &httpTarget{
		url:        u,
		baseHeader: http.Header{"User-Agent": {"mcp-gateway"}, "Accept-Encoding": {"identity"}},
		jar:        newCookieJar(),
		limit:      o.Limit,
	}
	s.addSecrets(secretsOf(u, o.Headers))
	if o.Via != "" {
		s.baseHeader.Set("Via", "1.1 "+o.Via)
	}
	for name, value := range o.Headers {
		if strings.EqualFold(name, "Host") { // of package net/http's header it would not be sent
			s.host = value
			continue
		}
		s.baseHeader.Set(name, value)
	}
	if o.RoundTripper == nil {
		pool := newPool()
		if pool.TLSClientConfig, err = o.TLS.load(); err != nil {
			return nil, err
		}
		o.RoundTripper = pool
	}
	s.pool = &http.Client{Transport: o.RoundTripper, CheckRedirect: sameOrigin, Jar: s.jar}
	return s, nil
}

// withURL returns the site that takes requests at u, which must be of the same origin.
// The query of u is a secret, too.
func (s *httpTarget) withURL(u *url.URL) *httpTarget {
	there := *s
	there.url = u
	there.addSecrets(secretsOf(u, nil))
	return &there
}

// newPool returns a pool of connections for one Conn. It bounds the time that
// connecting takes, and no other: a call may take an hour.
func newPool() *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		// Node closes a connection after 5 s without a request. A call that is
		// written at that very moment is lost, and must not be sent again.
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		// A message of some KiB goes out, and comes, with its header in one piece.
		WriteBufferSize: 16 << 10,
		ReadBufferSize:  16 << 10,
		// A stream of events that some hop compresses is held back in its buffers.
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
		// The far side of a silent stream may be long gone.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// sameOrigin follows a redirect if the headers may go there, too, and if the
// request stays what it was: of a POST, 301 to 303 would make a GET.
func sameOrigin(next *http.Request, via []*http.Request) error {
	first := via[0]
	if origin(next.URL) != origin(first.URL) || next.Method != first.Method || len(via) > 3 {
		return http.ErrUseLastResponse
	}
	return nil
}

// origin returns a URL's scheme, host and port, each origin in one spelling.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Scheme + "://" + strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}

// send sends one HTTP request, and again where e allows it. The body of the
// response is the caller's to close. An error does not show the URL.
func (s *httpTarget) send(ctx context.Context, method string, header http.Header, body []byte, e *retryPolicy) (*http.Response, error) {
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { e.connRequested.Store(true); e.connected.Store(false); e.written.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { e.connected.Store(true) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			e.written.Store(info.Err == nil)
			if e.onWritten != nil {
				e.onWritten()
			}
		},
	}
	var payload any // a nil []byte would be a body, too
	if body != nil {
		payload = body
	}
	req, err := retryable.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, s.url.String(), payload)
	if err != nil {
		return nil, s.redactError(err)
	}
	req.Header = header
	req.Host = cmp.Or(s.host, req.Host)
	cookie := slices.Clone(header["Cookie"])
	client := &retryable.Client{
		HTTPClient:   s.pool,
		RetryMax:     e.maxRetries,
		RetryWaitMin: 250 * time.Millisecond,
		RetryWaitMax: 4 * time.Second,
		CheckRetry:   e.shouldRetry,
		PrepareRetry: func(req *http.Request) error {
			if req.Header.Del("Cookie"); cookie != nil { // the Client adds those of the jar each time
				req.Header["Cookie"] = slices.Clone(cookie)
			}
			return e.beforeRetry(req)
		},
		Backoff:      retryable.DefaultBackoff,
		ErrorHandler: retryable.PassthroughErrorHandler, // or the last response is lost
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, s.redactError(err)
	}
	decode(resp, s.limit)
	return resp, nil
}

// secretsOf returns the parts of the configuration that must not be shown, should
// a server repeat them: header values, and all of the URL but host and path.
func secretsOf(u *url.URL, headers map[string]string) (secrets []string) {
	hide := func(secret string) {
		if len(secret) >= 4 { // less would blot out words at random
			secrets = append(secrets, secret)
		}
	}
	if password, is := u.User.Password(); is {
		hide(base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password)))
		hide(password)
	}
	hide(u.User.Username())
	hide(u.RawQuery)
	for _, values := range u.Query() {
		for _, value := range values {
			hide(value)
		}
	}
	for name, value := range headers {
		if strings.EqualFold(name, "Host") {
			continue
		}
		hide(value)
		if words := strings.Fields(value); len(words) > 1 { // "Bearer TOKEN"
			hide(words[len(words)-1])
		}
	}
	return secrets
}

// addSecrets adds to what must not be shown.
func (s *httpTarget) addSecrets(secrets []string) {
	s.secrets = slices.Concat(s.secrets, secrets)
	longest := func(a, b string) int { return len(b) - len(a) } // first, or one within it would leave the rest
	slices.SortFunc(s.secrets, longest)
	var pairs []string
	for _, secret := range s.secrets {
		pairs = append(pairs, secret, "***")
	}
	s.redactor = strings.NewReplacer(pairs...)
}

// redact returns text without secrets.
func (s *httpTarget) redact(text string) string {
	if text = s.redactor.Replace(text); s.jar != nil {
		text = s.jar.redact(text)
	}
	return text
}

// redactError returns err without the URL that package net/http adds to it, and
// without secrets. It adds what to do about the error, if that is known.
func (s *httpTarget) redactError(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	text := s.redact(err.Error())
	if hint := connectionHint(err); hint != "" {
		text += "; " + hint
	}
	if text != err.Error() {
		return &redactedError{text, err}
	}
	return err
}

// A redactedError error is another one whose text would show a secret.
type redactedError struct {
	text  string
	cause error
}

func (r *redactedError) Error() string { return r.text }
func (r *redactedError) Unwrap() error { return r.cause }
