package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An era is how a backend is spoken to. See docs/decisions/012-generation-probe.md.
type era uint8

const (
	unknownGeneration era = iota
	legacyGeneration      // a conversation begins with initialize
	modernGeneration      // each request says itself who asks
)

// methodDiscover asks a server what it is.
const methodDiscover = "server/discover"

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
	case b.cfg.Era == "legacy" || b.cfg.Transport == "sse":
		return detected{generation: legacyGeneration}, true
	case b.cfg.Era == "modern":
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

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// A discoverResult is what came of the question.
type discoverResult struct {
	server serverInfo
	err    error // classic, or why there is no answer
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
		m, err := p.RoundTrip(ctx, stamp.AddTo(wire.NewRequest("0", methodDiscover, nil)))
		_, unusable := errors.AsType[*peer.BadResponseError](err)
		switch {
		case unusable, errors.Is(err, httpclient.ErrNotStateless):
			return serverInfo{}, legacyServerError{requestError(methodDiscover, err)}
		case err != nil:
			return serverInfo{}, requestError(methodDiscover, err)
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
		Instructions: get("instructions"), ServerInfo: get("_meta", "io.modelcontextprotocol/serverInfo"),
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

// longestProbeTimeout is how long a backend may be silent when it is asked for its era, before
// it is greeted as one of the session era, too.
const longestProbeTimeout = 5 * time.Second

// Its answer may come as late as this after the one to initialize, and if that was a
// refusal, so that it all depends on it, as late as that.
const (
	lateResponseWait    = 20 * time.Millisecond
	refusedResponseWait = time.Second
)

func (b *Backend) probeTimeout() time.Duration {
	if t := b.cfg.StartTimeout / 3; t > 0 {
		return min(t, longestProbeTimeout)
	}
	return longestProbeTimeout
}

// probe finds out over a pipe of which era the backend is, and shakes hands
// accordingly. One that ends because of the question is known for it: retryOtherError. One
// that is silent may only be slow to start, so it is not ended but greeted as well,
// and the answer that comes counts.
func (bc *backendConn) probe(ctx context.Context, p *peer.Peer) (serverInfo, error) {
	asking, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	found := make(chan discoverResult, 1)
	running.Go(func() {
		s, err := bc.discover(asking, p)
		found <- discoverResult{s, err}
	})
	select {
	case d := <-found:
		return bc.afterProbe(ctx, p, d)
	case <-time.After(bc.b.probeTimeout()):
	}
	return bc.initializeSilent(ctx, p, found)
}

// initializeSilent greets a backend that has not answered the question of its era, and sees
// what comes first.
func (bc *backendConn) initializeSilent(ctx context.Context, p *peer.Peer, found <-chan discoverResult) (serverInfo, error) {
	s, err := bc.initialize(ctx, p)
	refused := isA[*wire.Error](err)
	wait := lateResponseWait
	if refused {
		wait = refusedResponseWait
	}
	var late discoverResult
	silent := true
	select {
	case late = <-found:
		silent = late.err != nil && !isA[legacyServerError](late.err)
	case <-time.After(wait):
	}
	switch {
	case err != nil && !silent && late.err == nil:
		return late.server, nil
	case !silent && late.err == nil: // it is of both: the next process is asked, too
	case !silent:
		bc.b.setGeneration(detected{generation: legacyGeneration})
	case err == nil:
		bc.log.Info("backend answers initialize, but not server/discover; with `era: legacy` it is not asked that", "dur", bc.b.probeTimeout())
		bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
	case refused, ctx.Err() == context.Canceled:
	default: // it did not start in time, or has ended
		bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
		if ctx.Err() == nil {
			err = retryOtherError{err}
		} else {
			err = fmt.Errorf("%w (it was sent server/discover first and did not answer; if it hangs at requests that it does not know, set `era: legacy`)",
				timeoutCause(ctx, err))
		}
	}
	return s, err
}

// afterProbe goes on with what a backend at a pipe has answered.
func (bc *backendConn) afterProbe(ctx context.Context, p *peer.Peer, d discoverResult) (serverInfo, error) {
	switch {
	case d.err == nil:
		return d.server, nil
	case isA[legacyServerError](d.err):
		bc.b.setGeneration(detected{generation: legacyGeneration})
		return bc.initialize(ctx, p)
	case ctx.Err() != nil:
		return serverInfo{}, d.err
	}
	bc.log.Debug("backend ended when it was asked server/discover; starting it again without", "err", d.err)
	bc.probeErr = d.err
	bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
	return serverInfo{}, retryOtherError{d.err}
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
