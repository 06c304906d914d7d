package backends

import (
	"context"
	"errors"
	"fmt"

	"mcpgateway/internal/protocol"
)

// connect makes one connection to the backend. It returns when nothing of the connection is left,
// with the reason for the end. If the failure shows that the backend may support the other
// generation, connect tries once more at once.
func (bc *backendConn) connect(ctx context.Context) error {
	err := bc.connectByGeneration(ctx)
	if isA[retryOtherError](err) && ctx.Err() == nil {
		err = bc.connectByGeneration(ctx)
	}
	bc.probeErr = nil
	if !bc.reachedReady() {
		bc.b.detection.forgetGeneration()
	}
	return err
}

// connectByGeneration connects according to the generation of the backend. A server behind a
// URL whose generation is not known is first tried as modern.
func (bc *backendConn) connectByGeneration(ctx context.Context) error {
	if bc.b.cfg.URL == "" {
		return bc.runConn(ctx, dialStdio)
	}
	d, configured := bc.b.detection.generation()
	if d.generation != protocol.Legacy && !bc.followsClient() {
		err := bc.runConn(ctx, dialHTTPStateless)
		switch {
		case configured || bc.reachedReady() || ctx.Err() != nil:
			return err
		case isA[undecidedError](err):
			return bc.connectAfterDiscover(ctx, d, err)
		case !isA[legacyServerError](err):
			return err
		}
		bc.log.Debug("legacy backend detected", "err", err)
		bc.b.detection.setGeneration(detectedGeneration{generation: protocol.Legacy})
		legacyErr := bc.connectHTTP(ctx)
		if other, ok := errors.AsType[retryOtherError](legacyErr); ok {
			return other.error // it was sent server/discover a moment ago
		}
		return legacyErr
	}
	return bc.connectHTTP(ctx)
}

// connectAfterDiscover sends initialize after server/discover has failed with an undecidedError,
// the argument refusal. If the backend was modern before, according to d, connectAfterDiscover
// returns refusal instead, and the next try sends server/discover again: the backend may only be
// restarting.
func (bc *backendConn) connectAfterDiscover(ctx context.Context, d detectedGeneration,
	refusal error) error {
	if d.generation == protocol.Modern {
		bc.b.detection.setGeneration(detectedGeneration{})
		return refusal
	}
	bc.log.Debug("server/discover inconclusive; trying initialize", "err", refusal)
	bc.probeErr = refusal
	bc.b.detection.setGeneration(detectedGeneration{generation: protocol.Legacy})
	err := bc.connectHTTP(ctx)
	if other, ok := errors.AsType[retryOtherError](err); ok {
		err = other.error // server/discover was sent a moment ago
	}
	return err
}

// connectHTTP connects to a legacy server behind a URL. If the server has no streamable HTTP,
// connectHTTP tries HTTP+SSE, unless the configuration excludes it (transport: http). With
// transport: sse, only HTTP+SSE is tried. Later connections use HTTP+SSE at once, until one of them
// fails to become ready.
func (bc *backendConn) connectHTTP(ctx context.Context) error {
	mode := dialHTTPStreamable
	if bc.b.detection.usesHTTPSSE() {
		mode = dialHTTPSSE
	}
	err := bc.runConn(ctx, mode)
	if !bc.b.fallsBackToSSE(err) {
		if mode == dialHTTPSSE && !bc.reachedReady() {
			bc.b.detection.setHTTPSSE(false)
		}
		return err
	}
	bc.log.Info("no streamable HTTP at the backend; trying HTTP+SSE", "err", err)
	sseErr := bc.runConn(ctx, dialHTTPSSE)
	if bc.reachedReady() {
		return sseErr
	}
	return fmt.Errorf("%w; HTTP+SSE also failed: %w", err, sseErr)
}

// mayBeLegacy reports whether initialize is sent at once after a connection failed with err,
// provided that the generation is not configured.
func (bc *backendConn) mayBeLegacy(err error) bool {
	d, _ := bc.b.detection.generation()
	return isA[legacyServerError](err) ||
		d.generation == protocol.UnknownGeneration && isA[undecidedError](err)
}

// reconnectsAtOnce reports whether another connection follows at once after err.
func (bc *backendConn) reconnectsAtOnce(err error) bool {
	_, configured := bc.b.detection.generation()
	return bc.b.fallsBackToSSE(err) || isA[retryOtherError](err) ||
		!configured && bc.mayBeLegacy(err) || errors.Is(err, errMergedIntoShared)
}
