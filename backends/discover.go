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

// errNoDiscoverResult is wrapped by the undecided error of a server that did not answer in time.
var errNoDiscoverResult = errors.New("no answer")

// isUndecided reports whether err, of server/discover sent to a URL, may come from a server of
// the session era. That is not so if the server wants another authorization, or if there was no
// connection.
func isUndecided(err error) bool {
	if isA[legacyServerError](err) {
		return false
	}
	status, answered := errors.AsType[*httpclient.StatusError](err)
	if answered {
		return status.Code != http.StatusUnauthorized && status.Code != http.StatusForbidden
	}
	lost, isLost := errors.AsType[*transport.CallLostError](err)
	return !isLost || lost.MayHaveRun
}

// discoverOverHTTP is discover for a server behind a URL whose era is not pinned. It waits no
// longer than patience.
func (bc *backendConn) discoverOverHTTP(ctx context.Context, p *peer.Peer) (serverInfo, error) {
	wait := bc.b.probeTimeout()
	asking, stop := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w within %v", errNoDiscoverResult, wait))
	defer stop()
	s, err := bc.discover(asking, p)
	switch {
	case err == nil || ctx.Err() != nil:
		return s, err
	case asking.Err() != nil:
		err = timeoutCause(asking, err)
	}
	if isUndecided(err) {
		return serverInfo{}, undecidedError{err}
	}
	return serverInfo{}, err
}

// discover asks a server what it is, in the words of the stateless era: what it
// says if it is of that, else a classic error, else why it did not answer. One that
// names another revision, or finds fault with the request, is asked twice. It is
// never asked to do anything. For how long the answer is good is not looked at: it
// is for the conversation.
func (bc *backendConn) discover(ctx context.Context, p *peer.Peer) (serverInfo, error) {
	speaks := protocol.Newest()
	for again := false; ; again = true {
		stamp := protocol.ClientMeta{Revision: speaks.Date, Capabilities: protocol.ClientCapabilitiesToModern(bc.capabilitiesToDeclare()), ClientInfo: bc.b.set.clientInfo}
		m, err := p.RoundTrip(ctx, stamp.AddTo(wire.NewRequest("0", protocol.MethodServerDiscover, nil)))
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
			common, ok := protocol.NewestModernOf(supportedRevisions(e.Data))
			if !ok {
				return serverInfo{}, legacyServerError{e}
			}
			speaks = common // be it the same: there are servers that first refuse it
		case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability:
		default:
			return serverInfo{}, legacyServerError{e}
		}
		if again {
			return serverInfo{}, legacyServerError{e}
		}
	}
}

// supportedRevisions reads the revisions that the data of an error names.
func supportedRevisions(data []byte) []string {
	value, _ := wire.Lookup(data, "supported")
	return stringArray(value)
}

// stringArray returns the strings of a JSON array.
func stringArray(array []byte) (all []string) {
	wire.EachElement(array, func(value []byte) bool {
		all = append(all, wire.Unquote(value))
		return len(all) < maxEntries
	})
	return all
}

// parseDiscover reads the result of server/discover. There are servers that answer
// anything with {}.
func parseDiscover(result []byte) (serverInfo, error) {
	get := func(path ...string) []byte { value, _ := wire.Lookup(result, path...); return value }
	common, ok := protocol.NewestModernOf(stringArray(get("supportedVersions")))
	if !ok || protocol.ResultType(result) != protocol.ResultComplete {
		return serverInfo{}, legacyServerError{errors.New("server/discover: its answer is no DiscoverResult with a revision that is known")}
	}
	s := serverInfo{
		ProtocolVersion: common.Date, modern: true, bothGenerations: includeLegacy(stringArray(get("supportedVersions"))),
		Capabilities: capabilitiesOf(get("capabilities")),
		Instructions: get("instructions"), ServerInfo: get("_meta", protocol.MetaServerInfo),
	}
	return s, nil
}

// includeLegacy reports whether there is a revision of the session era among some.
func includeLegacy(dates []string) bool {
	return slices.ContainsFunc(dates, func(date string) bool {
		t, known := protocol.FindRevision(date)
		return known && !t.Modern
	})
}
