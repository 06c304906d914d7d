package httpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	retryable "github.com/hashicorp/go-retryablehttp"

	"mcpgateway/internal/protocol"
)

// maxRetries is how often a message is sent again, and maxRetryAfter how long the
// server may ask to wait before that.
const (
	maxRetries    = 3
	maxRetryAfter = 30 * time.Second
)

// An retryPolicy decides whether one HTTP request is sent again. It is, when it
// surely was not executed: no connection was made, or the server put it off
// with 429 or 503 and Retry-After. A request that does no harm if it is executed
// twice is also sent again when the connection broke, and on 502, 503 and 504.
// A tools/call that may have run is never among these.
type retryPolicy struct {
	maxRetries int // after the first
	idempotent bool
	method     string
	log        *slog.Logger
	onWritten  func() // is called when the request has been written; may be nil

	// Of the attempt at hand; written from package net/http.
	connRequested atomic.Bool // a connection was asked for; false if the RoundTripper does not say
	connected     atomic.Bool // there is one, so that the request may have been sent
	written       atomic.Bool // all of the request was written
}

// isIdempotent reports whether executing a request twice leaves the server as if it
// had been executed once.
func isIdempotent(method string) bool {
	switch method {
	case protocol.MethodInitialize, protocol.MethodServerDiscover, protocol.MethodPing,
		protocol.MethodCompletionComplete, protocol.MethodSetLogLevel, protocol.MethodPromptsGet,
		protocol.MethodResourcesRead, protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe,
		protocol.MethodTasksGet, protocol.MethodTasksResult:
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// beforeRetry is a retryablehttp.PrepareRetry; it is called before each new attempt.
func (e *retryPolicy) beforeRetry(*http.Request) error {
	e.log.Debug("sending a message again", "method", e.method)
	return nil
}

// shouldRetry is a retryablehttp.CheckRetry. The library's own sends a POST again on
// every 5xx.
func (e *retryPolicy) shouldRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil || isPermanent(err):
		return false, nil
	case err != nil:
		return e.idempotent || e.notSent(err), nil
	case isRetryLater(resp):
		return retryable.DefaultBackoff(0, 0, 0, resp) <= maxRetryAfter, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.idempotent, nil
	}
	return false, nil
}

// notSent reports whether err is that of a request of which not a byte was sent.
func (e *retryPolicy) notSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return e.connRequested.Load() && !e.connected.Load() || ok && op.Op == "dial"
}

// isPermanent reports whether a request failed in a way that trying again does
// not change: the far side is not who it should be, or speaks no TLS.
func isPermanent(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || record || errors.Is(err, http.ErrSchemeMismatch)
}

// isRetryLater reports whether the server wants to be asked later.
func isRetryLater(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return resp.Header.Get("Retry-After") != ""
	}
	return false
}

// provesNotExecuted reports whether a response says for sure that the request was not
// executed. 503 alone does not: a proxy gives it, too, when the connection
// behind it breaks. Nor does 400, into which some servers turn any failure.
func provesNotExecuted(resp *http.Response) bool {
	switch code := resp.StatusCode; code {
	case http.StatusBadRequest, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusUnprocessableEntity, http.StatusFailedDependency:
		return false
	case http.StatusNotImplemented:
		return true
	default:
		return isRetryLater(resp) || 300 <= code && code < 500
	}
}
