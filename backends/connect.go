package backends

import (
	"context"
	"errors"
	"fmt"
)

// connect holds one conversation with the backend, from the dial to its end,
// and returns why it ended. Nothing of it is left then. If the way in which it failed
// tells of which era the backend is, there is another one at once.
func (bc *backendConn) connect(ctx context.Context) error {
	err := bc.connectByGeneration(ctx)
	if isA[retryOtherError](err) && ctx.Err() == nil {
		err = bc.connectByGeneration(ctx)
	}
	bc.probeErr = nil
	if !bc.reachedReady() {
		bc.b.forgetGeneration()
	}
	return err
}

// connectByGeneration is converse as what is known of the backend's era asks for. A server behind a
// URL is first taken for one of the stateless era, unless it is known for another.
func (bc *backendConn) connectByGeneration(ctx context.Context) error {
	if bc.b.cfg.URL == "" {
		return bc.runConn(ctx, dialStdio)
	}
	d, pinned := bc.b.generation()
	if d.generation != legacyGeneration && !bc.followsClient() {
		err := bc.runConn(ctx, dialHTTPStateless)
		switch {
		case pinned || bc.reachedReady() || ctx.Err() != nil:
			return err
		case isA[undecidedError](err):
			return bc.connectAfterDiscover(ctx, d, err)
		case !isA[legacyServerError](err):
			return err
		}
		bc.log.Debug("backend is of the session era", "err", err)
		bc.b.setGeneration(detected{generation: legacyGeneration})
		then := bc.connectHTTP(ctx)
		if other, ok := errors.AsType[retryOtherError](then); ok {
			return other.error // it was asked a moment ago
		}
		return then
	}
	return bc.connectHTTP(ctx)
}

// connectAfterDiscover begins with initialize after refusal, the undecided error of server/discover. A
// backend that was found to be stateless before, v, is asked server/discover once more first:
// it may only be restarting.
func (bc *backendConn) connectAfterDiscover(ctx context.Context, d detected, refusal error) error {
	if d.generation == modernGeneration {
		bc.b.setGeneration(detected{})
		return refusal
	}
	bc.log.Debug("backend does not answer server/discover; trying initialize", "err", refusal)
	bc.probeErr = refusal
	bc.b.setGeneration(detected{generation: legacyGeneration})
	err := bc.connectHTTP(ctx)
	if other, ok := errors.AsType[retryOtherError](err); ok {
		err = other.error // server/discover was sent a moment ago
	}
	return err
}

// connectHTTP is converse with a server of the session era behind a URL. One that has no
// streamable HTTP is tried over HTTP+SSE, and known for that until it fails so.
func (bc *backendConn) connectHTTP(ctx context.Context) error {
	by := dialHTTPStreamable
	if bc.b.usesHTTPSSE() {
		by = dialHTTPSSE
	}
	err := bc.runConn(ctx, by)
	if !bc.b.fallsBackToSSE(err) {
		if by == dialHTTPSSE && !bc.reachedReady() {
			bc.b.setHTTPSSE(false)
		}
		return err
	}
	bc.log.Info("backend has no streamable HTTP; trying HTTP+SSE", "err", err)
	then := bc.runConn(ctx, dialHTTPSSE)
	if bc.reachedReady() {
		return then
	}
	return fmt.Errorf("%w; nor does it speak HTTP+SSE: %w", err, then)
}

// mayBeLegacy reports whether initialize follows at once on a conversation that failed with err.
func (bc *backendConn) mayBeLegacy(err error) bool {
	d, _ := bc.b.generation()
	return isA[legacyServerError](err) || d.generation == unknownGeneration && isA[undecidedError](err)
}

// reconnectsAtOnce reports whether another conversation follows at once on one that failed so.
func (bc *backendConn) reconnectsAtOnce(err error) bool {
	_, pinned := bc.b.generation()
	return bc.b.fallsBackToSSE(err) || isA[retryOtherError](err) || !pinned && bc.mayBeLegacy(err) || errors.Is(err, errMergedIntoShared)
}
