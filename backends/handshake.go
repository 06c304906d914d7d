package backends

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// handshake finds out with whom the conversation is, in the way of the backend's era. If that
// is not known the far end of a pipe is asked for it; over HTTP the way by which it
// was dialled says which one is tried.
func (bc *backendConn) handshake(ctx context.Context, p *peer.Peer, by dialMode) (serverInfo, error) {
	d, pinned := bc.b.generation()
	mirrors := bc.followsClient()
	var s serverInfo
	var err error
	switch {
	case by == dialHTTPStateless && !pinned:
		s, err = bc.discoverOverHTTP(ctx, p)
	case by == dialHTTPStateless, by == dialStdio && pinned && d.generation == modernGeneration:
		s, err = bc.discover(ctx, p)
		switch {
		case pinned && isA[legacyServerError](err):
			err = fmt.Errorf("it does not speak %s: remove `era: modern` (%w)", protocol.Newest().Date, err)
		case pinned && isA[*child.ExitError](err):
			err = fmt.Errorf("%w (it was asked server/discover, because of `era: modern`)", err)
		}
	case by == dialStdio && d.generation != legacyGeneration && !mirrors:
		s, err = bc.probe(ctx, p)
	default:
		s, err = bc.initialize(ctx, p)
		switch {
		case mirrors && isA[*wire.Error](err): // whatever it says: it has not been asked what it is yet
			bc.b.setGeneration(detected{generation: modernGeneration})
			err = retryOtherError{err}
		case !pinned && saysModern(err):
			bc.b.setGeneration(detected{})
			err = retryOtherError{err}
		case bc.b.cfg.Generation == legacyName && saysModern(err):
			err = fmt.Errorf("it may speak %s alone: remove `era: legacy` (%w)", protocol.Newest().Date, err)
		}
	}
	if err != nil {
		return serverInfo{}, bc.withDiscoverError(ctx, err)
	}
	switch {
	case s.modern:
		bc.b.setGeneration(detected{generation: modernGeneration, bothGenerations: s.bothGenerations})
	case errors.Is(bc.probeErr, errNoDiscoverResult):
		bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
	}
	bc.mu.Lock()
	bc.server, bc.sentLevel = s, ""
	bc.mu.Unlock()
	bc.b.onReady(bc, s)
	switch {
	case isA[undecidedError](bc.probeErr):
		bc.log.Info("backend answers initialize, but not server/discover; with `era: legacy` it is not asked that", "err", bc.probeErr)
	case bc.probeErr != nil:
		bc.log.Info("backend ended when it was asked server/discover, and not without that; `era: legacy` spares it the question", "err", bc.probeErr)
	}
	return s, nil
}

// withDiscoverError adds to err, of initialize, that server/discover failed before it, if that is so. It
// does not where initialize could not be sent, or failed in the same way: then the revision is not
// the reason.
func (bc *backendConn) withDiscoverError(ctx context.Context, err error) error {
	if lost, isLost := errors.AsType[*transport.CallLostError](err); isLost && !lost.MayHaveRun {
		return err
	}
	if !isA[undecidedError](bc.probeErr) || isA[retryOtherError](err) || bc.b.fallsBackToSSE(err) || context.Cause(ctx) == context.Canceled {
		return err
	}
	err = timeoutCause(ctx, err)
	if sameFailure(err, bc.probeErr) {
		return err
	}
	return fmt.Errorf("%w (server/discover failed before that: %w; if the server does not know it, set `era: legacy`)",
		err, bc.probeErr)
}

// sameFailure reports whether two requests failed in the same way: with the same status, or with the
// same text.
func sameFailure(a, b error) bool {
	one, isStatus := errors.AsType[*httpclient.StatusError](a)
	if other, is := errors.AsType[*httpclient.StatusError](b); is && isStatus {
		return one.Code == other.Code
	}
	return a.Error() == b.Error()
}

// requestError names the request that an error is of, unless the connection is to blame, for
// whoever reads it.
func requestError(method string, err error) error {
	if isA[*transport.CallLostError](err) {
		return err
	}
	return fmt.Errorf("%s: %w", method, err)
}

// initialize begins a conversation of the session era: our newest revision of it is
// offered, any that we know is taken.
func (bc *backendConn) initialize(ctx context.Context, p *peer.Peer) (serverInfo, error) {
	declared := bc.capabilitiesToDeclare()
	bc.mu.Lock()
	bc.declaredCapabilities = declared
	bc.mu.Unlock()
	offer := func(date string) ([]byte, error) {
		return p.Call(ctx, protocol.MethodInitialize, wire.Encode(map[string]any{
			"protocolVersion": date,
			"capabilities":    json.RawMessage(declared),
			"clientInfo":      bc.b.set.ClientInfo,
		}))
	}
	result, err := offer(protocol.NewestLegacy().Date)
	if date := counterOfferedRevision(err); date != "" {
		bc.log.Debug("backend refuses our revision and names others; offering one of them", "revision", date, "err", err)
		again, failure := offer(date)
		switch {
		case failure == nil:
			result, err = again, nil
		case !isA[*wire.Error](failure):
			err = failure
		default:
			err = fmt.Errorf("%w; with %s: %w", err, date, failure)
		}
	}
	if err != nil {
		return serverInfo{}, requestError(protocol.MethodInitialize, err)
	}
	var s serverInfo
	if err := json.Unmarshal(result, &s); err != nil {
		return serverInfo{}, errors.New("initialize: its answer is no InitializeResult")
	}
	s.Capabilities = capabilitiesOf(s.Capabilities)
	if _, known := protocol.FindRevision(s.ProtocolVersion); !known {
		bc.log.Warn("backend speaks a revision that is not known; going on all the same",
			"revision", s.ProtocolVersion)
	}
	if err := p.Notify(protocol.NotificationInitialized, nil); err != nil {
		return serverInfo{}, fmt.Errorf("initialized: %w", err)
	}
	return s, nil
}

// counterOfferedRevision returns the newest revision of the session era that the server names when it
// refuses initialize, other than the one that it was offered; "" = none. Servers name them in
// data.supported, in members of other names, or in the message alone.
func counterOfferedRevision(err error) string {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return ""
	}
	text := e.Message + string(e.Data)
	for _, date := range protocol.RevisionDates() { // the newest first
		t, _ := protocol.FindRevision(date)
		if !t.Modern && date != protocol.NewestLegacy().Date && strings.Contains(text, date) {
			return date
		}
	}
	return ""
}

// capabilitiesToDeclare returns the capabilities that the backend is told: those of the client
// in question, as it has declared them. Where several clients share the line there
// are none, for nobody knows whom the backend would be asking.
func (bc *backendConn) capabilitiesToDeclare() []byte {
	session := bc.session
	if session == "" && bc.b.set.SingleClient {
		session = bc.b.set.soleSession()
	}
	return bc.b.set.clientCapabilities(session)
}

// capabilitiesDiffer reports whether the backend is of the session era, and was told of other
// capabilities than those of a session: a client may find out what is there before it
// says what it can do, and one that has no session says it with each request. While the
// backendConn is down nobody knows what the next server will be told; what waits for that is
// looked at when it has been (elsewhereLocked).
func (bc *backendConn) capabilitiesDiffer(session string) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.peer != nil && !bc.server.modern && bc.capabilitiesDifferLocked(session)
}

func (bc *backendConn) capabilitiesDifferLocked(session string) bool {
	return bc.b.set.isSessionOpen(session) && !sameJSON(bc.declaredCapabilities, bc.b.set.clientCapabilities(session))
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// onReady notes with whom the shared line is.
func (b *Backend) onReady(bc *backendConn, s serverInfo) {
	if bc.isPerSession() {
		bc.log.Debug("backend ready for a session", "server", s.displayName(), "revision", s.ProtocolVersion)
		return
	}
	b.mu.Lock()
	b.status.Server = s.displayName()
	b.status.Revision = s.ProtocolVersion
	b.mu.Unlock()
	bc.log.Info("backend ready", "server", s.displayName(), "revision", s.ProtocolVersion)
}

// restoreTimeout is how long a backend may take to answer what it is told again. It is
// not waited for any longer: it may be of those that never answer such.
const restoreTimeout = 5 * time.Second

// replayState tells a backend what the one before knew: the log level and the
// subscriptions. It returns the URIs of which an update may have been missed. One of
// the stateless era is told the level with each request, and the URIs by listen.
func (bc *backendConn) replayState(ctx context.Context, p *peer.Peer, s serverInfo) (missed []string) {
	if s.modern {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	var requests []wire.Message
	if level := bc.wantedLevel(); level != "" && s.has("logging") {
		requests = append(requests, setLevelRequest(level))
		bc.mu.Lock()
		bc.sentLevel = level
		bc.mu.Unlock()
	}
	bc.mu.Lock()
	missed, bc.resubscribeURIs = bc.subs.acceptedURIs(), nil
	bc.mu.Unlock()
	bc.resend(ctx, p, append(requests, subscribeRequests(bc.b.permittedURIs(missed))...))
	return missed
}

// resend tells a backend what the one before knew.
func (bc *backendConn) resend(ctx context.Context, p *peer.Peer, requests []wire.Message) {
	warned := false
	for some := range slices.Chunk(requests, 64) { // more than a few at once are refused by some
		for i, a := range p.RoundTripAll(ctx, some...) {
			if failure := a.Part(wire.PartError); a.Err == nil && failure != nil {
				a.Err = wire.ReadError(failure)
			}
			if a.Err != nil && !warned {
				warned = true
				bc.log.Warn("backend could not be told again what it was told before", "method", some[i].Method(), "err", a.Err)
			}
		}
	}
}
