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

	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// handshake performs the handshake of the backend's generation. If the generation is not
// configured, a server on stdio is probed, unless it is known to be legacy or followsClient reports
// true; over HTTP the dialMode determines the generation to try. A retryOtherError means that the
// other generation must be tried.
func (bc *backendConn) handshake(ctx context.Context, p *peer.Peer,
	mode dialMode) (serverInfo, error) {
	d, configured := bc.b.detection.generation()
	follows := bc.followsClient()
	var s serverInfo
	var err error
	switch {
	case mode == dialHTTPStateless && !configured:
		s, err = bc.discoverOverHTTP(ctx, p)
	case mode == dialHTTPStateless, mode == dialStdio && configured &&
		d.generation == protocol.Modern:
		s, err = bc.discover(ctx, p)
		switch {
		case configured && isA[legacyServerError](err):
			err = fmt.Errorf("it does not speak %s: remove `era: modern` (%w)",
				protocol.Newest().Date, err)
		case configured && isA[*child.ExitError](err):
			err = fmt.Errorf("%w (it was sent server/discover because of `era: modern`)", err)
		}
	case mode == dialStdio && d.generation != protocol.Legacy && !follows:
		s, err = bc.probe(ctx, p)
	default:
		s, err = bc.initialize(ctx, p)
		switch {
		case follows && isA[*wire.Error](err):
			// after any error, because server/discover was not sent yet
			bc.b.detection.setGeneration(detectedGeneration{generation: protocol.Modern})
			err = retryOtherError{err}
		case !configured && isModernRefusal(err):
			bc.b.detection.setGeneration(detectedGeneration{})
			err = retryOtherError{err}
		case bc.b.cfg.Generation == config.GenerationLegacy && isModernRefusal(err):
			err = fmt.Errorf("it may speak only %s: remove `era: legacy` (%w)",
				protocol.Newest().Date, err)
		}
	}
	if err != nil {
		return serverInfo{}, bc.withDiscoverError(ctx, err)
	}
	switch {
	case s.modern:
		bc.b.detection.setGeneration(detectedGeneration{generation: protocol.Modern,
			bothGenerations: s.bothGenerations})
	case errors.Is(bc.probeErr, errNoDiscoverResult):
		bc.b.detection.setGeneration(unprobeableLegacy)
	}
	bc.mu.Lock()
	bc.server, bc.sentLevel = s, ""
	bc.mu.Unlock()
	bc.noteReady(s)
	switch {
	case isA[undecidedError](bc.probeErr):
		bc.log.Info(
			"server/discover failed, but initialize succeeded; `era: legacy` avoids the probe",
			"err", bc.probeErr)
	case bc.probeErr != nil:
		bc.log.Info("backend ended on server/discover; `era: legacy` avoids the probe",
			"err", bc.probeErr)
	}
	return s, nil
}

// withDiscoverError adds an earlier failure of server/discover to err, the error of initialize. It
// returns err alone if there was no such failure, if another try follows at once, or if ctx was
// cancelled. It also returns err alone if initialize could not be sent or failed in the same way,
// because then the generation is not the reason.
func (bc *backendConn) withDiscoverError(ctx context.Context, err error) error {
	if lost, isLost := errors.AsType[*transport.CallLostError](err); isLost && !lost.MayHaveRun {
		return err
	}
	if !isA[undecidedError](bc.probeErr) || isA[retryOtherError](err) || bc.b.fallsBackToSSE(err) ||
		context.Cause(ctx) == context.Canceled {
		return err
	}
	err = timeoutCause(ctx, err)
	if sameFailure(err, bc.probeErr) {
		return err
	}
	return fmt.Errorf(
		"%w (server/discover failed first: %w; if the server does not know this method, set `era: legacy`)",
		err, bc.probeErr)
}

// sameFailure reports whether two requests failed in the same way: with the same status, or
// with the same text.
func sameFailure(a, b error) bool {
	one, isStatus := errors.AsType[*httpclient.StatusError](a)
	if other, is := errors.AsType[*httpclient.StatusError](b); is && isStatus {
		return one.Code == other.Code
	}
	return a.Error() == b.Error()
}

// requestError adds the method to the error of a request, unless the connection is the reason.
func requestError(method string, err error) error {
	if isA[*transport.CallLostError](err) {
		return err
	}
	return fmt.Errorf("%s: %w", method, err)
}

// initialize performs the handshake with a legacy server. It offers the newest legacy revision. If
// the server refuses this revision and names another legacy revision, initialize offers that one.
// It accepts any revision in the response, with a warning if the revision is unknown.
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
		bc.log.Debug("offered revision refused; offering another one",
			"revision", date, "err", err)
		second, failure := offer(date)
		switch {
		case failure == nil:
			result, err = second, nil
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
		return serverInfo{}, errors.New("initialize: the response is not an InitializeResult")
	}
	s.Capabilities = capabilitiesOf(s.Capabilities)
	if _, known := protocol.FindRevision(s.ProtocolVersion); !known {
		bc.log.Warn("unknown protocol revision; continuing",
			"revision", s.ProtocolVersion)
	}
	if err := p.Notify(protocol.NotificationInitialized, nil); err != nil {
		return serverInfo{}, fmt.Errorf("initialized: %w", err)
	}
	return s, nil
}

// counterOfferedRevision returns the newest legacy revision in err, the error response to
// initialize, other than the offered one; "" = none. Servers list revisions in data.supported, in
// members with other names, or only in the message.
func counterOfferedRevision(err error) string {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return ""
	}
	text := e.Message + string(e.Data)
	for _, date := range protocol.RevisionDates() { // newest first
		t, _ := protocol.FindRevision(date)
		if !t.Modern && date != protocol.NewestLegacy().Date && strings.Contains(text, date) {
			return date
		}
	}
	return ""
}

// capabilitiesToDeclare returns the capabilities for the handshake: the capabilities of the client
// of the connection. If several clients share the connection, none are declared, because a request
// of the backend could not be attributed to a client.
func (bc *backendConn) capabilitiesToDeclare() []byte {
	session := bc.session
	if session == "" && bc.b.set.SingleClient {
		session = bc.b.set.sessions.sole()
	}
	return bc.b.set.sessions.capabilities(session)
}

// capabilitiesDiffer reports whether the backend is legacy and the capabilities declared to it
// differ from those of a session. They may differ because a client may list entries before it
// declares its capabilities, and because modern clients declare them with each request. While the
// connection is down, the capabilities for the next handshake are unknown, and capabilitiesDiffer
// reports false; queued calls are checked after that handshake (belongsElsewhereLocked).
func (bc *backendConn) capabilitiesDiffer(session string) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.peer != nil && !bc.server.modern && bc.capabilitiesDifferLocked(session)
}

func (bc *backendConn) capabilitiesDifferLocked(session string) bool {
	return bc.b.set.sessions.isOpen(session) && !sameJSON(bc.declaredCapabilities,
		bc.b.set.sessions.capabilities(session))
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil &&
		bytes.Equal(x.Bytes(), y.Bytes())
}

// noteReady logs the server of a connection. It notes the server of the shared connection for the
// status.
func (bc *backendConn) noteReady(s serverInfo) {
	if bc.isPerSession() {
		bc.log.Debug("backend ready for a session", "server", s.displayName(),
			"revision", s.ProtocolVersion)
		return
	}
	bc.b.detection.setServer(s)
	bc.log.Info("backend ready", "server", s.displayName(), "revision", s.ProtocolVersion)
}

// restoreTimeout bounds the wait for responses to the gateway's requests about log levels and
// subscriptions, because some servers never respond to them.
const restoreTimeout = 5 * time.Second

// replayState restores the log level and the subscriptions after a reconnect. It returns the URIs
// whose updates may have been missed. For a modern server it does nothing and returns nil: such a
// server gets the level with each request, and the URIs through subscriptions/listen.
func (bc *backendConn) replayState(ctx context.Context, p *peer.Peer,
	s serverInfo) (missed []string) {
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
	permitted := bc.b.filters.permittedURIs(missed)
	bc.sendRestoring(ctx, p, append(requests, subscribeRequests(permitted)...))
	return missed
}

// sendRestoring sends requests of the gateway that restore the state of a server, such as
// subscriptions. It waits for the responses, and logs the first failure.
func (bc *backendConn) sendRestoring(ctx context.Context, p *peer.Peer, requests []wire.Message) {
	warned := false
	for some := range slices.Chunk(requests, 64) { // some servers refuse large bursts
		for i, a := range p.RoundTripAll(ctx, some...) {
			if failure := a.Part(wire.PartError); a.Err == nil && failure != nil {
				a.Err = wire.ReadError(failure)
			}
			if a.Err != nil && !warned {
				warned = true
				bc.log.Warn("restoring the log level or subscriptions failed",
					"method", some[i].Method(), "err", a.Err)
			}
		}
	}
}
