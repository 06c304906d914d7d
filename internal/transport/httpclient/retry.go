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

// maxRetries bounds the retries of a message. maxRetryAfter bounds the delay that the server may
// request.
const (
	maxRetries    = 3
	maxRetryAfter = 30 * time.Second
)

// A retryPolicy decides whether one HTTP request is retried. A request is retried if it was
// certainly not executed: there was no connection, or the server responded with 429 or 503 and a
// Retry-After of at most maxRetryAfter. An idempotent request is also retried if the connection
// broke, or if the status is 502, 504, or 503 without Retry-After. No request is retried if a retry
// would fail in the same way (see isPermanent). A tools/call that may have run is never retried.
type retryPolicy struct {
	maxRetries int
	idempotent bool
	method     string // JSON-RPC method, for the log
	log        *slog.Logger
	onWritten  func() // called when the request has been written; may be nil
	onRetry    func() // called before the request is sent again; may be nil

	// State of the current attempt, set by package net/http.
	connRequested atomic.Bool // a connection was requested; false without tracing
	connected     atomic.Bool // there was a connection, so the request may have been sent
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
	r.noteRetry()
	return nil
}

func (r *retryPolicy) noteRetry() {
	if r.onRetry != nil {
		r.onRetry()
	}
}

// shouldRetry is a retryablehttp.CheckRetry. It replaces the default of the library, which retries
// a POST on every 5xx except 501.
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

// notSent reports whether err is the error of a request that was not sent, not even in part.
func (r *retryPolicy) notSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return r.connRequested.Load() && !r.connected.Load() || ok && op.Op == "dial"
}

// isPermanent reports whether a retry would fail in the same way: the certificate of the server is
// not valid, or the server does not use TLS.
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

// provesNotExecuted reports whether a response proves that the request was not executed. Proofs are
// 501, 503 with Retry-After, and 300 to 499 except 400, 408, 409, 422 and 424. 503 without
// Retry-After proves nothing, because a proxy also sends 503 when its connection to the server
// breaks. 400 proves nothing, because some servers send it for any failure. 408, 409, 422 and 424
// prove nothing, because a server may send them after it has begun to execute the request.
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
