package httpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
)

// Hints for a url with the wrong scheme.
const (
	hintUseHTTP  = "write http:// in url if the server has no TLS"
	hintUseHTTPS = "write https:// in url: the server speaks TLS"
)

// statusHint returns advice for a response whose status or body shows a mistake in the
// configuration of the backend; "" = none.
func (t *httpTarget) statusHint(resp *http.Response, body []byte) string {
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return t.authHint(resp)
	case resp.StatusCode == http.StatusBadRequest && t.url.Scheme == "http" && wantsTLS(body):
		return hintUseHTTPS
	}
	return ""
}

// authHint returns advice for a response with status 401. The advice contains neither the challenge
// nor the header that was sent.
func (t *httpTarget) authHint(resp *http.Response) string {
	challenge := strings.ToLower(strings.Join(resp.Header.Values("WWW-Authenticate"), ", "))
	switch {
	case t.baseHeader.Get("Authorization") != "" || t.url.User != nil:
		return "the server refuses the configured authorization: " +
			"check the token, or the user and password"
	case t.authorizer != nil && resp.Request.Header.Get("Authorization") != "":
		return "the server refuses the access tokens that its authorization server issues: " +
			"gateway logout and gateway login begin again"
	case challenge == "":
		return "the server wants authorization: " +
			"set the header that it needs, often Authorization, in headers of the backend"
	}
	hint := "the server wants authorization: set a header Authorization in headers of the backend"
	if strings.Contains(challenge, "bearer") {
		hint += ", or use gateway login if the server has OAuth"
	}
	return hint
}

// wantsTLS reports whether the body of a response with status 400 contains the text with which Go,
// nginx or Apache reports that the port expects TLS.
func wantsTLS(body []byte) bool {
	return containsAny(strings.ToLower(string(body[:min(len(body), maxHead)])),
		"http request to an https server",
		"http request was sent to https port",
		"plain http to an ssl-enabled server")
}

// connectionHint returns advice for an error of a connection; "" = none.
func (t *httpTarget) connectionHint(err error) string {
	_, isRecordHeader := errors.AsType[tls.RecordHeaderError](err)
	if isRecordHeader || errors.Is(err, http.ErrSchemeMismatch) {
		return hintUseHTTP
	}
	if strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`) { // a TLS alert
		return hintUseHTTPS
	}
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "set tls.ca of the backend, or SSL_CERT_FILE of the gateway, " +
			"to a file with the certificate of that authority"
	}
	if _, is := errors.AsType[x509.HostnameError](err); is {
		return "set tls.server_name of the backend to the name in the certificate " +
			"if that is the right server"
	}
	op, is := errors.AsType[*net.OpError](err)
	refused := is && op.Op == "remote error" &&
		containsAny(op.Err.Error(), "certificate", "handshake failure")
	failed := (!is || op.Op != "dial") && !errors.Is(err, context.Canceled) && !os.IsTimeout(err)
	// net/http loses the alert of the server if the request cannot be written.
	if refused || failed && t.certificateState.Load() == certificateRequested {
		return "set tls.cert and tls.key of the backend if the server requires a certificate"
	}
	return ""
}
