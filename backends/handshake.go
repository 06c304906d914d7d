package backends

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"mcpgateway/internal/config"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// A serverHandshake is the exchange that begins a link. It finds out the generation of the server
// if it is not known.
type serverHandshake struct {
	*connector
	link *link
	mode dialMode
}

// run performs the handshake of the backend's generation. If the generation is not configured, a
// server on stdio is probed, unless it is known to be legacy or followsClient reports true; over
// HTTP the dialMode determines the generation to try. A retryOtherError means that the other
// generation must be tried.
func (h *serverHandshake) run(ctx context.Context) error {
	d, configured := h.detection.generation()
	follows := h.followsClient()
	bc, mode := h.conn, h.mode
	var s serverInfo
	var err error
	switch {
	case mode == dialHTTPStateless && !configured:
		s, err = h.discoverOverHTTP(ctx)
	case mode == dialHTTPStateless, mode == dialStdio && configured &&
		d.generation == protocol.Modern:
		s, err = h.link.discover(ctx)
		switch {
		case configured && isA[legacyServerError](err):
			err = fmt.Errorf("it does not speak %s: remove `era: modern` (%w)",
				protocol.Newest().Date, err)
		case configured && isA[*child.ExitError](err):
			err = fmt.Errorf("%w (it was sent server/discover because of `era: modern`)", err)
		}
	case mode == dialStdio && d.generation != protocol.Legacy && !follows:
		s, err = h.probe(ctx)
	default:
		s, err = h.initialize(ctx)
		switch {
		case follows && isA[*wire.Error](err):
			// after any error, because server/discover was not sent yet
			h.detection.setGeneration(detectedGeneration{generation: protocol.Modern})
			err = retryOtherError{err}
		case !configured && isModernRefusal(err):
			h.detection.setGeneration(detectedGeneration{})
			err = retryOtherError{err}
		case bc.b.cfg.Generation == config.GenerationLegacy && isModernRefusal(err):
			err = fmt.Errorf("it may speak only %s: remove `era: legacy` (%w)",
				protocol.Newest().Date, err)
		}
	}
	if err != nil {
		return h.withDiscoverError(ctx, err)
	}
	switch {
	case s.modern:
		// A server that was found to support only modern revisions remains so, even if its
		// DiscoverResult now names a legacy revision: it may have refused initialize.
		onlyModern := d.generation == protocol.Modern && !d.bothGenerations
		h.detection.setGeneration(detectedGeneration{generation: protocol.Modern,
			bothGenerations: s.bothGenerations && !onlyModern})
	case errors.Is(h.probeErr, errNoDiscoverResult):
		h.detection.setGeneration(unprobeableLegacy)
	}
	h.link.server.Store(&s)
	h.noteReady(s)
	switch {
	case isA[undecidedError](h.probeErr):
		bc.log.Info(
			"server/discover failed, but initialize succeeded; `era: legacy` avoids the probe",
			"err", h.probeErr)
	case h.probeErr != nil:
		bc.log.Info("backend ended on server/discover; `era: legacy` avoids the probe",
			"err", h.probeErr)
	}
	return nil
}

// withDiscoverError adds an earlier failure of server/discover to err, the error of initialize. It
// returns err alone if there was no such failure, if another try follows at once, or if ctx was
// cancelled. It also returns err alone if initialize could not be sent or failed in the same way,
// because then the generation is not the reason.
func (h *serverHandshake) withDiscoverError(ctx context.Context, err error) error {
	if lost, isLost := errors.AsType[*transport.CallLostError](err); isLost && !lost.MayHaveRun {
		return err
	}
	if !isA[undecidedError](h.probeErr) || isA[retryOtherError](err) ||
		h.conn.b.fallsBackToSSE(err) || context.Cause(ctx) == context.Canceled {
		return err
	}
	err = timeoutCause(ctx, err)
	if sameFailure(err, h.probeErr) {
		return err
	}
	return fmt.Errorf(
		"%w (server/discover failed first: %w; if the server does not know this method, set `era: legacy`)",
		err, h.probeErr)
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
func (h *serverHandshake) initialize(ctx context.Context) (serverInfo, error) {
	bc, p := h.conn, h.link.peer
	h.link.declared = bc.capabilitiesToDeclare()
	offer := func(date string) ([]byte, error) {
		return p.Call(ctx, protocol.MethodInitialize, wire.Encode(map[string]any{
			"protocolVersion": date,
			"capabilities":    json.RawMessage(h.link.declared),
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

// noteReady logs the server of a connection. It notes the server of the shared connection for the
// status.
func (h *serverHandshake) noteReady(s serverInfo) {
	bc := h.conn
	if bc.isPerSession() {
		bc.log.Debug("backend ready for a session", "server", s.displayName(),
			"revision", s.ProtocolVersion)
		return
	}
	h.detection.setServer(s)
	bc.log.Info("backend ready", "server", s.displayName(), "revision", s.ProtocolVersion)
}
