package backends

import (
	"errors"
	"strings"

	"mcpgateway/internal/config"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// A detectedGeneration is the protocol generation of a backend as found by probes and handshakes.
type detectedGeneration struct {
	generation protocol.Generation
	// the backend ended, or became silent, when it was probed. The cache keeps this value for the
	// next start of the gateway. For a child process, only a later response of the backend resets
	// it.
	unprobeable     bool
	bothGenerations bool // it is modern, and also supports legacy revisions
}

// followsClient reports whether the connection begins with initialize although the backend may
// support both generations: it serves a single client, and the client is legacy or the shared
// connection is legacy. Such a connection uses the generation of the client, like a direct
// connection of a client: some servers can send certain requests in one generation only. If the
// configuration sets the generation, followsClient reports false.
func (bc *backendConn) followsClient() bool {
	d, configured := bc.b.generation()
	set := bc.b.set
	switch {
	case configured, d.generation == protocol.Modern && !d.bothGenerations:
		return false
	case bc.isPerSession() && set.SingleClient: // it exists because the shared connection is legacy
		return bc.b.cfg.URL == "" && d.generation != protocol.Legacy
	case bc.isPerSession():
		return d.bothGenerations && bc.b.sessionFollowsClient(bc.session)
	}
	return set.SingleClient && bc.b.cfg.URL == "" && set.isSessionClient(set.soleSession())
}

// generation returns the generation of the backend, and whether the configuration sets it (by era
// or transport).
func (b *Backend) generation() (d detectedGeneration, configured bool) {
	switch {
	case b.cfg.Generation == config.GenerationLegacy || b.cfg.Transport == config.TransportSSE:
		return detectedGeneration{generation: protocol.Legacy}, true
	case b.cfg.Generation == config.GenerationModern:
		return detectedGeneration{generation: protocol.Modern}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.detected, false
}

func (b *Backend) setGeneration(d detectedGeneration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detected = d
}

// forgetGeneration resets a detected legacy generation after a failed start, because the detection
// may have been wrong. A child process that is unprobeable remains so. A server behind a URL is
// probed again, because a probe takes one timeout at most.
func (b *Backend) forgetGeneration() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detected.generation == protocol.Legacy && (!b.detected.unprobeable || b.cfg.URL != "") {
		b.detected = detectedGeneration{}
	}
}

// A retryOtherError is the error of a failed connection after which the other generation may work.
type retryOtherError struct{ error }

func (e retryOtherError) Unwrap() error { return e.error }

// A legacyServerError is the response of a legacy server to server/discover.
type legacyServerError struct{ error }

func (e legacyServerError) Unwrap() error { return e.error }

// An undecidedError means that a server behind a URL refused server/discover without naming a
// generation, or did not respond. Some legacy servers do that, so initialize is tried next.
type undecidedError struct{ error }

func (u undecidedError) Unwrap() error { return u.error }

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isLegacyRefusal reports whether an HTTP server refused a request before it acted on the request,
// with a status that servers use if they support only legacy revisions.
func isLegacyRefusal(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	status, _ := errors.AsType[*httpclient.StatusError](err)
	return ok && !lost.MayHaveRun && status != nil &&
		(status.Code == 400 || status.Code == 404 || status.Code == 405)
}

// isModernRefusal reports whether err, the error of initialize, indicates that the server is
// modern: the server does not know the version or the method, or names a modern revision.
func isModernRefusal(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}
	if e.Code == protocol.CodeUnsupportedVersion || e.Code == wire.CodeMethodNotFound {
		return true
	}
	for _, date := range protocol.RevisionDates() {
		if t, _ := protocol.FindRevision(date); t.Modern &&
			strings.Contains(e.Message+string(e.Data), date) {
			return true
		}
	}
	return false
}
