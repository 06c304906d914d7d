package httpclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	retryable "github.com/hashicorp/go-retryablehttp"

	"mcpgateway/internal/text"
	"mcpgateway/internal/transport/http1"
	"mcpgateway/internal/weburl"
	"mcpgateway/internal/wire"
)

// An httpTarget is the URL of an HTTP server, with the headers and secrets of its requests.
type httpTarget struct {
	url          *url.URL
	baseHeader   http.Header // User-Agent, Accept-Encoding, Via; configured headers except Host
	pool         *http.Client
	secrets      []string          // texts that must not be shown
	redactor     *strings.Replacer // replaces secrets
	jar          *cookieJar
	authorizer   Authorizer  // nil = none
	tokens       *sentTokens // of authorizer
	host         string      // header Host; "" = that of url
	messageLimit int         // bytes of one message
	// whether the server may require a client certificate that is not configured
	certificateState *atomic.Int32
}

// States of httpTarget.certificateState.
const (
	certificateUnknown   int32 = iota
	certificateRequested       // the server has requested one, none is configured, no response yet
	certificateNotNeeded       // the server has responded
)

// errNoURL is the error for an invalid URL. Its text omits the URL, which may contain secrets.
var errNoURL = errors.New("the url is not that of an HTTP server")

func newTarget(o Options) (*httpTarget, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errNoURL
	}
	t := &httpTarget{
		url:          u,
		baseHeader:   http.Header{"User-Agent": {"mcp-gateway"}, "Accept-Encoding": {"identity"}},
		jar:          newCookieJar(),
		authorizer:   o.Authorizer,
		tokens:       new(sentTokens),
		messageLimit: o.Limit, certificateState: new(atomic.Int32),
	}
	t.addSecrets(secretsOf(u, o.Headers))
	if o.Via != "" {
		t.baseHeader.Set("Via", "1.1 "+o.Via)
	}
	for name, value := range o.Headers {
		if strings.EqualFold(name, "Host") { // net/http ignores Host in the headers
			t.host = value
			continue
		}
		t.baseHeader.Set(name, value)
	}
	if o.RoundTripper == nil {
		config, err := o.TLS.Config()
		if err != nil {
			return nil, err
		}
		if config.Certificates == nil {
			config.GetClientCertificate = t.noCertificate
		}
		if t.isPlain() {
			o.RoundTripper = newPlainPool(u, nil)
		} else {
			pool := newPool()
			pool.TLSClientConfig, o.RoundTripper = config, pool
		}
	}
	t.pool = &http.Client{Transport: o.RoundTripper, CheckRedirect: sameOrigin, Jar: t.jar}
	return t, nil
}

// noCertificate implements GetClientCertificate of [tls.Config]: it sends no certificate.
func (t *httpTarget) noCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	t.certificateState.CompareAndSwap(certificateUnknown, certificateRequested)
	return new(tls.Certificate), nil
}

// withURL returns a copy of t for requests to u, which must have the same origin. The query of u
// becomes one of the secrets.
func (t *httpTarget) withURL(u *url.URL) *httpTarget {
	copied := *t
	copied.url = u
	copied.addSecrets(secretsOf(u, nil))
	return &copied
}

// isPlain reports whether all requests to t can be sent over plain HTTP/1.1, without a proxy. A
// redirect or an endpoint cannot change this, because it must have the same origin.
func (t *httpTarget) isPlain() bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: t.url})
	return t.url.Scheme == "http" && proxy == nil && err == nil &&
		http1.CanSend(t.url.Host) && (t.host == "" || http1.CanSend(t.host))
}

const (
	maxIdleConns = 256
	// A server on Node closes a connection after 5 s without a request. A call that is written at
	// that moment would be lost, and must not be retried.
	idleConnTimeout = 4 * time.Second
	maxHeaderBytes  = 256 << 10
	connBufferSize  = 16 << 10 // a message of some KiB is written, and read, with its headers
)

// newPlainPool returns the pool of connections of a Conn for which isPlain returns true. dial
// replaces the dialer; nil = not replaced.
func newPlainPool(
	u *url.URL, dial func(ctx context.Context, network, addr string) (net.Conn, error),
) *http1.RoundTripper {
	_, addr, _ := strings.Cut(weburl.Origin(u), "://")
	return http1.New(http1.Options{
		Addr: addr, Dial: dial, MaxIdle: maxIdleConns, IdleTimeout: idleConnTimeout,
		MaxHeaderBytes: maxHeaderBytes, BufferSize: connBufferSize,
	})
}

// newPool returns the pool of connections of any other Conn. It limits the time to connect, but not
// the time of a call, which may take an hour.
func newPool() *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        idleConnTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		WriteBufferSize:        connBufferSize,
		ReadBufferSize:         connBufferSize,
		// A proxy that compresses a stream of events delays them in its buffers.
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
		// The pings detect that the server of a silent stream has disappeared.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// sameOrigin follows a redirect only to the same origin, to which the headers may be sent, three
// times at most, and only if the method stays the same: 301 to 303 would turn a POST into a GET.
func sameOrigin(next *http.Request, via []*http.Request) error {
	first := via[0]
	if weburl.Origin(next.URL) != weburl.Origin(first.URL) || next.Method != first.Method ||
		len(via) > 3 {
		return http.ErrUseLastResponse
	}
	return nil
}

// send sends one HTTP request, with the retries of retry. The caller closes the body of the
// response. Errors do not contain the URL.
func (t *httpTarget) send(
	ctx context.Context, method string, header http.Header, body wire.Text, retry *retryPolicy,
) (*http.Response, error) {
	trace := &httptrace.ClientTrace{
		GetConn: func(string) {
			retry.connRequested.Store(true)
			retry.connected.Store(false)
			retry.written.Store(false)
		},
		GotConn:              func(httptrace.GotConnInfo) { retry.connected.Store(true) },
		GotFirstResponseByte: func() { t.certificateState.Store(certificateNotNeeded) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			retry.written.Store(info.Err == nil)
			if retry.onWritten != nil {
				retry.onWritten()
			}
		},
	}
	plain := &http.Request{
		Method: method, URL: t.url, Header: header,
		Host:  cmp.Or(t.host, strings.TrimSuffix(t.url.Host, ":")),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	req, err := retryable.FromRequest(plain.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err == nil && body.Len() > 0 {
		err = req.SetBody(func() (io.Reader, error) { return &textReader{body}, nil })
	}
	if err != nil {
		return nil, t.redactError(err)
	}
	cookie := slices.Clone(header["Cookie"])
	client := &retryable.Client{
		HTTPClient:   t.pool,
		RetryMax:     retry.maxRetries,
		RetryWaitMin: 250 * time.Millisecond,
		RetryWaitMax: 4 * time.Second,
		CheckRetry:   retry.shouldRetry,
		PrepareRetry: func(req *http.Request) error {
			// http.Client adds the cookies of the jar to each attempt.
			if req.Header.Del("Cookie"); cookie != nil {
				req.Header["Cookie"] = slices.Clone(cookie)
			}
			return retry.beforeRetry(req)
		},
		Backoff:      retryable.DefaultBackoff,
		ErrorHandler: retryable.PassthroughErrorHandler, // otherwise the last response is lost
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, t.redactError(err)
	}
	decode(resp, t.messageLimit)
	return resp, nil
}

// sendAuthorized sends a request, with a token of the Authorizer if there is one.
func (t *httpTarget) sendAuthorized(
	ctx context.Context, method string, header http.Header, body wire.Text, retry *retryPolicy,
) (*http.Response, error) {
	if t.authorizer == nil {
		return t.send(ctx, method, header, body, retry)
	}
	for refusals := 0; ; refusals++ {
		token, err := t.authorizer.Token(ctx)
		if err != nil {
			return nil, &AuthorizationError{err}
		}
		if header.Del("Authorization"); token != "" {
			header.Set("Authorization", "Bearer "+token)
			t.tokens.add(token)
		}
		resp, err := t.send(ctx, method, header, body, retry)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden ||
			refusals == maxRefusals {
			return resp, nil
		}
		again, err := t.authorizer.Refused(ctx, token, resp)
		if !again && err == nil {
			return resp, nil
		}
		if resp.ContentLength >= 0 && resp.ContentLength <= maxRefusedBody {
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		resp.Body.Close()
		if err != nil {
			return nil, &AuthorizationError{err}
		}
		retry.noteRetry()
		// Package net/http may still read the header, to which it has added cookies.
		header = header.Clone()
		if header.Del("Cookie"); t.baseHeader["Cookie"] != nil {
			header["Cookie"] = slices.Clone(t.baseHeader["Cookie"])
		}
	}
}

// secretsOf returns the parts of the configuration that must be masked if a server repeats them:
// header values except Host, and all parts of the URL except host and path. Parts of less than four
// characters are left out.
func secretsOf(u *url.URL, headers map[string]string) (secrets []string) {
	hide := func(secret string) {
		if len(secret) >= 4 { // shorter values would redact ordinary words
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

// addSecrets adds secrets to those of the target.
func (t *httpTarget) addSecrets(secrets []string) {
	t.secrets = slices.Concat(t.secrets, secrets)
	// The longest secret is first, because one secret may contain another.
	longest := func(a, b string) int { return len(b) - len(a) }
	slices.SortFunc(t.secrets, longest)
	var pairs []string
	for _, secret := range t.secrets {
		pairs = append(pairs, secret, "***")
	}
	t.redactor = strings.NewReplacer(pairs...)
}

// redact replaces the secrets in text.
func (t *httpTarget) redact(text string) string {
	text = t.redactor.Replace(text)
	if t.authorizer != nil {
		text = t.tokens.redact(text)
	}
	if t.jar != nil {
		text = t.jar.redact(text)
	}
	return text
}

// maxErrorText bounds the text of an error, in bytes: net/http repeats headers of a response there,
// such as a Location that is not a URL.
const maxErrorText = 1 << 10

// redactError removes secrets, and the URL that package net/http adds, from err. It truncates the
// text to maxErrorText bytes and appends the advice of connectionHint.
func (t *httpTarget) redactError(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	shown := text.Truncate(t.redact(err.Error()), maxErrorText)
	if hint := t.connectionHint(err); hint != "" {
		shown += "; " + hint
	}
	if shown != err.Error() {
		return &redactedError{shown, err}
	}
	return err
}

// A redactedError wraps an error and replaces its text.
type redactedError struct {
	text  string
	cause error
}

func (r *redactedError) Error() string { return r.text }
func (r *redactedError) Unwrap() error { return r.cause }
