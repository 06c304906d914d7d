package backends

import (
	"context"
	"errors"
	"fmt"

	"mcpgateway/internal/protocol"
)

// A connector makes one connection to a backend. If the generation or the transport of the server
// is not known, it may dial several times, until one of them is the right one.
type connector struct {
	conn      *backendConn
	detection *detection
	probeErr  error // failure of server/discover over the preceding link, nil = none
}

// connect makes one connection to the backend. It returns when nothing of the connection is left,
// with the reason for the end. If the failure shows that the backend may support the other
// generation, connect tries once more at once.
func (c *connector) connect(ctx context.Context) error {
	err := c.connectByGeneration(ctx)
	if isA[retryOtherError](err) && ctx.Err() == nil {
		err = c.connectByGeneration(ctx)
	}
	// the end of a session is not a failed start, but leaves a guess
	if !c.conn.reachedReady() && (ctx.Err() == nil || isA[undecidedError](c.probeErr)) {
		c.detection.forgetGeneration()
	}
	return err
}

// connectByGeneration connects according to the generation of the backend. A server behind a
// URL whose generation is not known is first tried as modern.
func (c *connector) connectByGeneration(ctx context.Context) error {
	if c.conn.b.cfg.URL == "" {
		return c.runConn(ctx, dialStdio)
	}
	d, configured := c.detection.generation()
	if d.generation != protocol.Legacy && !c.followsClient() {
		err := c.runConn(ctx, dialHTTPStateless)
		switch {
		case configured || c.conn.reachedReady() || ctx.Err() != nil:
			return err
		case isA[undecidedError](err) && d.generation == protocol.Modern:
			// it may only be restarting: the next try sends server/discover again
			c.detection.setGeneration(detectedGeneration{})
			return err
		case isA[undecidedError](err):
			c.conn.log.Debug("server/discover inconclusive; trying initialize", "err", err)
			c.probeErr = err
		case isA[legacyServerError](err):
			c.conn.log.Debug("legacy backend detected", "err", err)
		default:
			return err
		}
		c.detection.setGeneration(detectedGeneration{generation: protocol.Legacy})
		err = c.connectHTTP(ctx)
		if other, ok := errors.AsType[retryOtherError](err); ok {
			return other.error // it was sent server/discover a moment ago
		}
		return err
	}
	return c.connectHTTP(ctx)
}

// connectHTTP connects to a legacy server behind a URL. If the server has no streamable HTTP,
// connectHTTP tries HTTP+SSE, unless the configuration excludes it (transport: http). With
// transport: sse, only HTTP+SSE is tried. Later connections use HTTP+SSE at once, until one of them
// fails to become ready.
func (c *connector) connectHTTP(ctx context.Context) error {
	mode := dialHTTPStreamable
	if c.detection.usesHTTPSSE() {
		mode = dialHTTPSSE
	}
	err := c.runConn(ctx, mode)
	if !c.conn.b.fallsBackToSSE(err) {
		if mode == dialHTTPSSE && !c.conn.reachedReady() && ctx.Err() == nil {
			c.detection.setHTTPSSE(false)
		}
		return err
	}
	c.conn.log.Info("no streamable HTTP at the backend; trying HTTP+SSE", "err", err)
	sseErr := c.runConn(ctx, dialHTTPSSE)
	if c.conn.reachedReady() {
		return sseErr
	}
	return fmt.Errorf("%w; HTTP+SSE also failed: %w", err, sseErr)
}

// mayBeLegacy reports whether initialize is sent at once after a connection failed with err,
// provided that the generation is not configured.
func (c *connector) mayBeLegacy(err error) bool {
	d, _ := c.detection.generation()
	return isA[legacyServerError](err) ||
		d.generation == protocol.UnknownGeneration && isA[undecidedError](err)
}

// reconnectsAtOnce reports whether another connection follows at once after err.
func (c *connector) reconnectsAtOnce(err error) bool {
	_, configured := c.detection.generation()
	return c.conn.b.fallsBackToSSE(err) || isA[retryOtherError](err) ||
		!configured && c.mayBeLegacy(err) || errors.Is(err, errMergedIntoShared)
}

// followsClient reports whether the connection begins with initialize although the backend may
// support both generations: it serves a single client, and the client is legacy or the shared
// connection is legacy. Such a connection uses the generation of the client, like a direct
// connection of a client: some servers can send certain requests in one generation only. If the
// configuration sets the generation, followsClient reports false.
func (c *connector) followsClient() bool {
	d, configured := c.detection.generation()
	bc, set := c.conn, c.conn.b.set
	switch {
	case configured, d.generation == protocol.Modern && !d.bothGenerations:
		return false
	case bc.isPerSession() && set.SingleClient: // it exists because the shared connection is legacy
		return bc.b.cfg.URL == "" && d.generation != protocol.Legacy
	case bc.isPerSession():
		return d.bothGenerations && bc.b.sessionFollowsClient(bc.session)
	}
	return set.SingleClient && bc.b.cfg.URL == "" && set.sessions.isClient(set.sessions.sole())
}
