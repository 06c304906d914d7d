package backends

import (
	"errors"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// An era is how a backend is spoken to. See docs/decisions/012-generation-probe.md.
type era uint8

const (
	unknownGeneration era = iota
	legacyGeneration      // a conversation begins with initialize
	modernGeneration      // each request says itself who asks
)

// A detected is what is known of a backend's era. Costly is one that was not told but
// detected out: the backend ended, or fell silent, when it was asked. It is kept for the
// next start of the gateway, and forgotten only when the backend itself contradicts it.
type detected struct {
	generation      era
	unprobeable     bool
	bothGenerations bool // it is stateless, and says that it speaks the other era, too
}

// followsClient reports whether the line is for a single client, which is of the session era,
// and the backend may be of both: then it is spoken to as that client would do it
// itself. There are servers of both that can ask something in one of them alone.
func (bc *backendConn) followsClient() bool {
	d, pinned := bc.b.generation()
	set := bc.b.set
	switch {
	case pinned, d.generation == modernGeneration && !d.bothGenerations:
		return false
	case bc.isPerSession() && set.SingleClient: // it is there because the shared line is of the session era
		return bc.b.cfg.URL == "" && d.generation != legacyGeneration
	case bc.isPerSession():
		return d.bothGenerations && bc.b.sessionFollowsClient(bc.session)
	}
	return set.SingleClient && bc.b.cfg.URL == "" && set.isSessionClient(set.soleSession())
}

// detected returns what is known of the backend's era, and whether that is because the
// configuration says so.
func (b *Backend) generation() (d detected, pinned bool) {
	switch {
	case b.cfg.Generation == "legacy" || b.cfg.Transport == "sse":
		return detected{generation: legacyGeneration}, true
	case b.cfg.Generation == "modern":
		return detected{generation: modernGeneration}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.detected, false
}

func (b *Backend) setGeneration(d detected) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detected = d
}

// forgetGeneration forgets a verdict with which the backend could not be started: the reason may be any
// other. A costly verdict on a program is kept. A server behind a URL is asked again, because
// that costs patience at most.
func (b *Backend) forgetGeneration() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detected.generation == legacyGeneration && (!b.detected.unprobeable || b.cfg.URL != "") {
		b.detected = detected{}
	}
}

// retryOtherError is why a conversation failed when that has told how another one may do
// better, at once.
type retryOtherError struct{ error }

func (e retryOtherError) Unwrap() error { return e.error }

// legacyServerError is how a server of the session era answers the question of its era.
type legacyServerError struct{ error }

func (e legacyServerError) Unwrap() error { return e.error }

// An undecidedError error says that a server behind a URL refused server/discover in a way that does
// not name an era, or did not answer it. Some servers of the session era do that, so initialize
// is tried next.
type undecidedError struct{ error }

func (u undecidedError) Unwrap() error { return u.error }

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isLegacyRefusal reports whether a request was refused as by an HTTP server that knows only the
// session era, before anything was done.
func isLegacyRefusal(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	status, _ := errors.AsType[*httpclient.StatusError](err)
	return ok && !lost.MayHaveRun && status != nil && (status.Code == 400 || status.Code == 404 || status.Code == 405)
}

// saysModern reports whether a server refuses initialize because it is of the
// stateless era.
func saysModern(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}
	if e.Code == protocol.CodeUnsupportedVersion || e.Code == wire.CodeMethodNotFound {
		return true
	}
	for _, date := range protocol.RevisionDates() {
		if t, _ := protocol.FindRevision(date); t.Modern && strings.Contains(e.Message+string(e.Data), date) {
			return true
		}
	}
	return false
}
