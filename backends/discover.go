package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// errNoDiscoverResult is wrapped by the undecidedError of a server that did not respond in
// time.
var errNoDiscoverResult = errors.New("no answer")

// isUndecided reports whether err, the error of server/discover at a URL, leaves open whether the
// server is legacy. It reports false for a legacyServerError, for errors of authorization, and for
// a request that the server has not received.
func isUndecided(err error) bool {
	if isA[legacyServerError](err) {
		return false
	}
	status, hasStatus := errors.AsType[*httpclient.StatusError](err)
	if hasStatus {
		return status.Code != http.StatusUnauthorized && status.Code != http.StatusForbidden
	}
	lost, isLost := errors.AsType[*transport.CallLostError](err)
	return !isLost || lost.MayHaveRun
}

// discoverOverHTTP calls discover with the timeout probeTimeout, for a server behind a URL whose
// generation is not configured. If the failure leaves the generation open, the error is an
// undecidedError.
func (h *serverHandshake) discoverOverHTTP(ctx context.Context) (serverInfo, error) {
	wait := h.probeTimeout()
	probeCtx, stop := context.WithTimeoutCause(ctx, wait,
		fmt.Errorf("%w within %v", errNoDiscoverResult, wait))
	defer stop()
	s, err := h.link.discover(probeCtx)
	switch {
	case err == nil || ctx.Err() != nil:
		return s, err
	case probeCtx.Err() != nil:
		err = timeoutCause(probeCtx, err)
	}
	if isUndecided(err) {
		return serverInfo{}, undecidedError{err}
	}
	return serverInfo{}, err
}

// discover sends server/discover. It returns the result of a modern server, a legacyServerError for
// any other response, or else the reason for the lack of a response. If the server refuses the
// version and names a known modern one, or reports a header mismatch or a missing capability,
// discover retries once. It ignores ttlMs: the result is valid for the lifetime of the connection.
func (l *link) discover(ctx context.Context) (serverInfo, error) {
	revision := protocol.Newest()
	for retry := false; ; retry = true {
		meta := protocol.ClientMeta{Revision: revision.Date,
			Capabilities: protocol.ClientCapabilitiesToModern(l.conn.capabilitiesToDeclare()),
			ClientInfo:   l.conn.b.set.clientInfo}
		m, err := l.peer.RoundTrip(ctx,
			meta.AddTo(wire.NewRequest("0", protocol.MethodServerDiscover, nil)))
		_, unusable := errors.AsType[*peer.BadResponseError](err)
		switch {
		case unusable, errors.Is(err, httpclient.ErrNotStateless):
			return serverInfo{}, legacyServerError{requestError(protocol.MethodServerDiscover, err)}
		case err != nil:
			return serverInfo{}, requestError(protocol.MethodServerDiscover, err)
		}
		failure := m.Part(wire.PartError)
		if failure == nil {
			return parseDiscover(m.OneLine().Part(wire.PartResult))
		}
		e := wire.ReadError(failure)
		switch e.Code {
		case protocol.CodeUnsupportedVersion:
			supported, _ := wire.Lookup(e.Data, "supported")
			common, ok := protocol.NewestModernOf(stringArray(supported))
			if !ok {
				return serverInfo{}, legacyServerError{e}
			}
			revision = common // even if it is the same: some servers refuse it the first time
		case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability:
		default:
			return serverInfo{}, legacyServerError{e}
		}
		if retry {
			return serverInfo{}, legacyServerError{e}
		}
	}
}

// stringArray returns the strings of a JSON array, maxEntries at most.
func stringArray(array []byte) (all []string) {
	wire.EachElement(array, func(value []byte) bool {
		all = append(all, wire.Unquote(value))
		return len(all) < maxEntries
	})
	return all
}

// parseDiscover parses the result of server/discover. It returns a legacyServerError for a result
// that is not complete or names no known modern revision, because some legacy servers respond to
// every request with {}.
func parseDiscover(result []byte) (serverInfo, error) {
	get := func(path ...string) []byte { value, _ := wire.Lookup(result, path...); return value }
	dates := stringArray(get("supportedVersions"))
	common, ok := protocol.NewestModernOf(dates)
	if !ok || protocol.ResultType(result) != protocol.ResultComplete {
		return serverInfo{},
			legacyServerError{errors.New(
				"server/discover: the response is not a DiscoverResult with a known modern revision")}
	}
	return serverInfo{
		ProtocolVersion: common.Date, modern: true,
		bothGenerations: includeLegacy(dates),
		Capabilities:    capabilitiesOf(get("capabilities")),
		Instructions:    get("instructions"), ServerInfo: get("_meta", protocol.MetaServerInfo),
	}, nil
}

// includeLegacy reports whether a legacy revision is among dates.
func includeLegacy(dates []string) bool {
	return slices.ContainsFunc(dates, func(date string) bool {
		t, known := protocol.FindRevision(date)
		return known && !t.Modern
	})
}
