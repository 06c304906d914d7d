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
	unknown    era = iota
	ofSessions     // a conversation begins with initialize
	stateless      // each request says itself who asks
)

// discoverMethod asks a server what it is.
const discoverMethod = "server/discover"

// A verdict is what is known of a backend's era. Costly is one that was not told but
// found out: the backend ended, or fell silent, when it was asked. It is kept for the
// next start of the gateway, and forgotten only when the backend itself contradicts it.
type verdict struct {
	era    era
	costly bool
	both   bool // it is stateless, and says that it speaks the other era, too
}

// mirrors reports whether the line is for a single client, which is of the session era,
// and the backend may be of both: then it is spoken to as that client would do it
// itself. There are servers of both that can ask something in one of them alone.
func (l *line) mirrors() bool {
	v, pinned := l.b.verdict()
	set := l.b.set
	switch {
	case pinned, v.era == stateless && !v.both:
		return false
	case l.own() && set.SingleClient: // it is there because the shared line is of the session era
		return l.b.cfg.URL == "" && v.era != ofSessions
	case l.own():
		return v.both && l.b.isMirrored(l.session)
	}
	return set.SingleClient && l.b.cfg.URL == "" && set.hasSession(set.soleSession())
}

// verdict returns what is known of the backend's era, and whether that is because the
// configuration says so.
func (b *Backend) verdict() (v verdict, pinned bool) {
	switch {
	case b.cfg.Era == "legacy" || b.cfg.Transport == "sse":
		return verdict{era: ofSessions}, true
	case b.cfg.Era == "modern":
		return verdict{era: stateless}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found, false
}

func (b *Backend) judge(v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found = v
}

// unsettle forgets a verdict with which the backend could not be started: the reason may be any
// other. A costly verdict on a program is kept. A server behind a URL is asked again, because
// that costs patience at most.
func (b *Backend) unsettle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found.era == ofSessions && (!b.found.costly || b.cfg.URL != "") {
		b.found = verdict{}
	}
}

// otherEra is why a conversation failed when that has told how another one may do
// better, at once.
type otherEra struct{ error }

func (e otherEra) Unwrap() error { return e.error }

// classic is how a server of the session era answers the question of its era.
type classic struct{ error }

func (e classic) Unwrap() error { return e.error }

// An undecided error says that a server behind a URL refused server/discover in a way that does
// not name an era, or did not answer it. Some servers of the session era do that, so initialize
// is tried next.
type undecided struct{ error }

func (u undecided) Unwrap() error { return u.error }

// errSilent is wrapped by the undecided error of a server that did not answer in time.
var errSilent = errors.New("no answer")

// isUndecided reports whether err, of server/discover sent to a URL, may come from a server of
// the session era. That is not so if the server wants another authorization, or if there was no
// connection.
func isUndecided(err error) bool {
	if isA[classic](err) {
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
func (l *line) discoverOverHTTP(ctx context.Context, p *peer.Peer) (server, error) {
	wait := l.b.patience()
	asking, stop := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w within %v", errSilent, wait))
	defer stop()
	s, err := l.discover(asking, p)
	switch {
	case err == nil || ctx.Err() != nil:
		return s, err
	case asking.Err() != nil:
		err = because(asking, err)
	}
	if isUndecided(err) {
		return server{}, undecided{err}
	}
	return server{}, err
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// A discovery is what came of the question.
type discovery struct {
	server server
	err    error // classic, or why there is no answer
}

// discover asks a server what it is, in the words of the stateless era: what it
// says if it is of that, else a classic error, else why it did not answer. One that
// names another revision, or finds fault with the request, is asked twice. It is
// never asked to do anything. For how long the answer is good is not looked at: it
// is for the conversation.
func (l *line) discover(ctx context.Context, p *peer.Peer) (server, error) {
	speaks := protocol.Newest()
	for again := false; ; again = true {
		stamp := protocol.ClientMeta{Revision: speaks.Date, Capabilities: protocol.ClientCapabilitiesToModern(l.declares()), ClientInfo: l.b.set.client}
		m, err := p.RoundTrip(ctx, stamp.AddTo(wire.NewRequest("0", discoverMethod, nil)))
		_, unusable := errors.AsType[*peer.BadResponseError](err)
		switch {
		case unusable, errors.Is(err, httpclient.ErrNotStateless):
			return server{}, classic{failed(discoverMethod, err)}
		case err != nil:
			return server{}, failed(discoverMethod, err)
		}
		failure := m.Part(wire.PartError)
		if failure == nil {
			return readDiscovery(m.OneLine().Part(wire.PartResult))
		}
		e := wire.ReadError(failure)
		switch e.Code {
		case protocol.CodeUnsupportedVersion:
			common, ok := protocol.NewestModernOf(supported(e.Data))
			if !ok {
				return server{}, classic{e}
			}
			speaks = common // be it the same: there are servers that first refuse it
		case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability:
		default:
			return server{}, classic{e}
		}
		if again {
			return server{}, classic{e}
		}
	}
}

// supported reads the revisions that the data of an error names.
func supported(data []byte) []string {
	value, _ := wire.Lookup(data, "supported")
	return texts(value)
}

// texts returns the strings of a JSON array.
func texts(array []byte) (all []string) {
	wire.EachElement(array, func(value []byte) bool {
		all = append(all, wire.Unquote(value))
		return len(all) < maxListed
	})
	return all
}

// readDiscovery reads the result of server/discover. There are servers that answer
// anything with {}.
func readDiscovery(result []byte) (server, error) {
	get := func(path ...string) []byte { value, _ := wire.Lookup(result, path...); return value }
	common, ok := protocol.NewestModernOf(texts(get("supportedVersions")))
	if !ok || protocol.ResultType(result) != protocol.ResultComplete {
		return server{}, classic{errors.New("server/discover: its answer is no DiscoverResult with a revision that is known")}
	}
	s := server{
		ProtocolVersion: common.Date, stateless: true, both: haveSessions(texts(get("supportedVersions"))),
		Capabilities: capabilitiesOf(get("capabilities")),
		Instructions: get("instructions"), ServerInfo: get("_meta", "io.modelcontextprotocol/serverInfo"),
	}
	return s, nil
}

// haveSessions reports whether there is a revision of the session era among some.
func haveSessions(dates []string) bool {
	return slices.ContainsFunc(dates, func(date string) bool {
		t, known := protocol.FindRevision(date)
		return known && !t.Modern
	})
}

// patience is how long a backend may be silent when it is asked for its era, before
// it is greeted as one of the session era, too.
const patience = 5 * time.Second

// Its answer may come as late as this after the one to initialize, and if that was a
// refusal, so that it all depends on it, as late as that.
const (
	lateWait    = 20 * time.Millisecond
	refusedWait = time.Second
)

func (b *Backend) patience() time.Duration {
	if t := b.cfg.StartTimeout / 3; t > 0 {
		return min(t, patience)
	}
	return patience
}

// probe finds out over a pipe of which era the backend is, and shakes hands
// accordingly. One that ends because of the question is known for it: otherEra. One
// that is silent may only be slow to start, so it is not ended but greeted as well,
// and the answer that comes counts.
func (l *line) probe(ctx context.Context, p *peer.Peer) (server, error) {
	asking, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	found := make(chan discovery, 1)
	running.Go(func() {
		s, err := l.discover(asking, p)
		found <- discovery{s, err}
	})
	select {
	case d := <-found:
		return l.conclude(ctx, p, d)
	case <-time.After(l.b.patience()):
	}
	return l.greetSilent(ctx, p, found)
}

// greetSilent greets a backend that has not answered the question of its era, and sees
// what comes first.
func (l *line) greetSilent(ctx context.Context, p *peer.Peer, found <-chan discovery) (server, error) {
	s, err := l.initialize(ctx, p)
	refused := isA[*wire.Error](err)
	wait := lateWait
	if refused {
		wait = refusedWait
	}
	var late discovery
	silent := true
	select {
	case late = <-found:
		silent = late.err != nil && !isA[classic](late.err)
	case <-time.After(wait):
	}
	switch {
	case err != nil && !silent && late.err == nil:
		return late.server, nil
	case !silent && late.err == nil: // it is of both: the next process is asked, too
	case !silent:
		l.b.judge(verdict{era: ofSessions})
	case err == nil:
		l.log.Info("backend answers initialize, but not server/discover; with `era: legacy` it is not asked that", "dur", l.b.patience())
		l.b.judge(verdict{era: ofSessions, costly: true})
	case refused, ctx.Err() == context.Canceled:
	default: // it did not start in time, or has ended
		l.b.judge(verdict{era: ofSessions, costly: true})
		if ctx.Err() == nil {
			err = otherEra{err}
		} else {
			err = fmt.Errorf("%w (it was sent server/discover first and did not answer; if it hangs at requests that it does not know, set `era: legacy`)",
				because(ctx, err))
		}
	}
	return s, err
}

// conclude goes on with what a backend at a pipe has answered.
func (l *line) conclude(ctx context.Context, p *peer.Peer, d discovery) (server, error) {
	switch {
	case d.err == nil:
		return d.server, nil
	case isA[classic](d.err):
		l.b.judge(verdict{era: ofSessions})
		return l.initialize(ctx, p)
	case ctx.Err() != nil:
		return server{}, d.err
	}
	l.log.Debug("backend ended when it was asked server/discover; starting it again without", "err", d.err)
	l.hasty = d.err
	l.b.judge(verdict{era: ofSessions, costly: true})
	return server{}, otherEra{d.err}
}

// contradicts reports whether a server refuses initialize because it is of the
// stateless era.
func contradicts(err error) bool {
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
