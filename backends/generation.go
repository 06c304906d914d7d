package backends

import (
	"errors"
	"strings"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/internal/config"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// unprobeableLegacy is the generation of a backend that ended or became silent when it was probed.
var unprobeableLegacy = detectedGeneration{generation: protocol.Legacy, unprobeable: true}

// A detectedGeneration is the protocol generation of a backend as found by probes and handshakes.
type detectedGeneration struct {
	generation protocol.Generation
	// the backend ended, or became silent, when it was probed. The cache keeps this value for the
	// next start of the gateway. For a child process, only a later response of the backend resets
	// it.
	unprobeable     bool
	bothGenerations bool // it is modern, and also supports legacy revisions
}

// detection contains what the connections of a backend have found out about its server.
type detection struct {
	configured protocol.Generation // set by era or transport; UnknownGeneration = not configured
	onlySSE    bool                // transport: sse
	hasURL     bool

	mu                lockrank.Mutex[stateRank]
	found             detectedGeneration // generation found by probes and handshakes
	httpSSE           bool               // it was found to support HTTP+SSE only
	cachedUnprobeable bool               // the cache file marks it as unprobeable
	// name/version and revision of the server, from the last handshake over the shared connection
	server, revision string
}

func newDetection(c *config.Backend) *detection {
	d := &detection{onlySSE: c.Transport == config.TransportSSE, hasURL: c.URL != ""}
	switch {
	case c.Generation == config.GenerationLegacy || d.onlySSE:
		d.configured = protocol.Legacy
	case c.Generation == config.GenerationModern:
		d.configured = protocol.Modern
	}
	return d
}

// generation returns the generation of the backend, and whether the configuration sets it (by era
// or transport).
func (d *detection) generation() (g detectedGeneration, configured bool) {
	if d.configured != protocol.UnknownGeneration {
		return detectedGeneration{generation: d.configured}, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found, false
}

func (d *detection) setGeneration(g detectedGeneration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = g
}

// forgetGeneration resets a detected legacy generation after a failed start, because the detection
// may have been wrong. A child process that is unprobeable remains so. A server behind a URL is
// probed again, because a probe takes one timeout at most.
func (d *detection) forgetGeneration() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found.generation == protocol.Legacy && (!d.found.unprobeable || d.hasURL) {
		d.found = detectedGeneration{}
	}
}

// usesHTTPSSE reports whether the backend is dialled over HTTP+SSE.
func (d *detection) usesHTTPSSE() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.httpSSE || d.onlySSE
}

func (d *detection) setHTTPSSE(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.httpSSE = on
}

// setServer notes the server of the shared connection.
func (d *detection) setServer(s serverInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server, d.revision = s.displayName(), s.ProtocolVersion
}

// serverName returns the name/version and the revision of the last server; "" = none yet.
func (d *detection) serverName() (server, revision string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server, d.revision
}

// copyFrom copies the detected generation and transport of the same server.
func (d *detection) copyFrom(old *detection) {
	old.mu.Lock()
	found, httpSSE, cached := old.found, old.httpSSE, old.cachedUnprobeable
	old.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found, d.httpSSE, d.cachedUnprobeable = found, httpSSE, cached
}

// loadUnprobeable is called if the cache file marks the backend as unprobeable.
func (d *detection) loadUnprobeable() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = unprobeableLegacy
	d.cachedUnprobeable = true
}

// unprobeable returns whether the backend is unprobeable, and whether the cache file says so.
func (d *detection) unprobeable() (is, cached bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found.unprobeable && d.configured == protocol.UnknownGeneration, d.cachedUnprobeable
}

func (d *detection) setCachedUnprobeable(cached bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cachedUnprobeable = cached
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
