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

// maxRetries bounds the retries of a message, and maxRetryAfter the delay that the server may ask
// for.
const (
	maxRetries    = 3
	maxRetryAfter = 30 * time.Second
)

// A retryPolicy decides whether one HTTP request is retried. It is retried if it was certainly not
// executed: no connection was made, or the server responded with 429 or 503 and Retry-After. An
// idempotent request is also retried if the connection broke, and on 502, 503 and 504. A tools/call
// that may have run is never retried.
type retryPolicy struct {
	maxRetries int
	idempotent bool
	method     string // JSON-RPC method, for the log
	log        *slog.Logger
	onWritten  func() // called when the request has been written; may be nil

	// State of the current attempt, set by package net/http.
	connRequested atomic.Bool // a connection was requested; false without tracing
	connected     atomic.Bool // there is a connection, so the request may have been sent
	written       atomic.Bool // the whole request was written
}

// isIdempotent reports whether executing a request twice leaves the server in the same state as
// executing it once.
func isIdempotent(method string) bool {
	switch method {
	case protocol.MethodInitialize, protocol.MethodServerDiscover, protocol.MethodPing,
		protocol.MethodCompletionComplete, protocol.MethodSetLogLevel, protocol.MethodPromptsGet,
		protocol.MethodResourcesRead,
		protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe,
		protocol.MethodTasksGet, protocol.MethodTasksResult:
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// beforeRetry is a retryablehttp.PrepareRetry; it is called before each retry.
func (r *retryPolicy) beforeRetry(*http.Request) error {
	r.log.Debug("retrying a message", "method", r.method)
	return nil
}

// shouldRetry is a retryablehttp.CheckRetry. The default one of the library retries a POST on
// every 5xx.
func (r *retryPolicy) shouldRetry(
	ctx context.Context, resp *http.Response, err error,
) (bool, error) {
	switch {
	case ctx.Err() != nil || isPermanent(err):
		return false, nil
	case err != nil:
		return r.idempotent || r.notSent(err), nil
	case isRetryLater(resp):
		return retryable.DefaultBackoff(0, 0, 0, resp) <= maxRetryAfter, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return r.idempotent, nil
	}
	return false, nil
}

// notSent reports whether err is the error of a request of which not a single byte was sent.
func (r *retryPolicy) notSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return r.connRequested.Load() && !r.connected.Load() || ok && op.Op == "dial"
}

// isPermanent reports whether a retry would fail in the same way: the certificate of the server
// is not valid, or the server does not speak TLS.
func isPermanent(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || record || errors.Is(err, http.ErrSchemeMismatch)
}

// isRetryLater reports whether the server asks for a retry after a delay.
func isRetryLater(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return resp.Header.Get("Retry-After") != ""
	}
	return false
}

// provesNotExecuted reports whether a response proves that the request was not executed. 503
// alone does not: a proxy sends it, too, when the connection behind it breaks. Nor does 400,
// which some servers send for any failure.
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
