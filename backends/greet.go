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

	"mcpgateway/internal/transport/child"

	"mcpgateway/internal/transport/httpclient"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A server is what a backend said of itself in the handshake.
type server struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Capabilities    json.RawMessage `json:"capabilities"`
	ServerInfo      json.RawMessage `json:"serverInfo"`
	Instructions    json.RawMessage `json:"instructions"`

	stateless bool // it was a DiscoverResult: ProtocolVersion is the revision to speak
	both      bool // likewise, and there are revisions of the session era in it
}

// name returns the server's name/version, as far as it has told them: only the
// revision has to be right.
func (s server) name() string {
	var info struct{ Name, Version json.RawMessage }
	_ = json.Unmarshal(s.ServerInfo, &info)
	if info.Name == nil && info.Version == nil {
		return ""
	}
	return wire.Unquote(info.Name) + "/" + wire.Unquote(info.Version)
}

// capabilitiesOf returns the capabilities that a server has declared. Some say null, or [], for none.
func capabilitiesOf(capabilities []byte) json.RawMessage {
	if !wire.IsObject(capabilities) {
		return nothing
	}
	return capabilities
}

func (s server) instructions() string { return wire.Unquote(s.Instructions) }

// has reports whether the server has declared a capability.
func (s server) has(capability ...string) bool {
	return catalog.Declares(s.Capabilities, capability...)
}

// lists reports whether it makes sense to ask the server for a list. For tools it
// does always: they are what servers are for.
func (s server) lists(k catalog.Kind) bool {
	return k == catalog.Tools || s.has(k.Capability())
}

// greet finds out with whom the conversation is, in the way of the backend's era. If that
// is not known the far end of a pipe is asked for it; over HTTP the way by which it
// was dialled says which one is tried.
func (l *line) greet(ctx context.Context, p *peer.Peer, by way) (server, error) {
	v, pinned := l.b.verdict()
	mirrors := l.mirrors()
	var s server
	var err error
	switch {
	case by == byItself && !pinned:
		s, err = l.discoverOverHTTP(ctx, p)
	case by == byItself, by == byPipe && pinned && v.era == stateless:
		s, err = l.discover(ctx, p)
		switch {
		case pinned && isA[classic](err):
			err = fmt.Errorf("it does not speak %s: remove `era: modern` (%w)", protocol.Newest().Date, err)
		case pinned && isA[*child.ExitError](err):
			err = fmt.Errorf("%w (it was asked server/discover, because of `era: modern`)", err)
		}
	case by == byPipe && v.era != ofSessions && !mirrors:
		s, err = l.probe(ctx, p)
	default:
		s, err = l.initialize(ctx, p)
		switch {
		case mirrors && isA[*wire.Error](err): // whatever it says: it has not been asked what it is yet
			l.b.judge(verdict{era: stateless})
			err = otherEra{err}
		case !pinned && contradicts(err):
			l.b.judge(verdict{})
			err = otherEra{err}
		case l.b.cfg.Era == legacy && contradicts(err):
			err = fmt.Errorf("it may speak %s alone: remove `era: legacy` (%w)", protocol.Newest().Date, err)
		}
	}
	if err != nil {
		return server{}, l.afterRefusal(ctx, err)
	}
	switch {
	case s.stateless:
		l.b.judge(verdict{era: stateless, both: s.both})
	case errors.Is(l.hasty, errSilent):
		l.b.judge(verdict{era: ofSessions, costly: true})
	}
	l.mu.Lock()
	l.server, l.level = s, ""
	l.mu.Unlock()
	l.b.met(l, s)
	switch {
	case isA[undecided](l.hasty):
		l.log.Info("backend answers initialize, but not server/discover; with `era: legacy` it is not asked that", "err", l.hasty)
	case l.hasty != nil:
		l.log.Info("backend ended when it was asked server/discover, and not without that; `era: legacy` spares it the question", "err", l.hasty)
	}
	return s, nil
}

// afterRefusal adds to err, of initialize, that server/discover failed before it, if that is so. It
// does not where initialize could not be sent, or failed in the same way: then the revision is not
// the reason.
func (l *line) afterRefusal(ctx context.Context, err error) error {
	if lost, isLost := errors.AsType[*transport.CallLostError](err); isLost && !lost.MayHaveRun {
		return err
	}
	if !isA[undecided](l.hasty) || isA[otherEra](err) || l.b.fallsBack(err) || context.Cause(ctx) == context.Canceled {
		return err
	}
	err = because(ctx, err)
	if failedAlike(err, l.hasty) {
		return err
	}
	return fmt.Errorf("%w (server/discover failed before that: %w; if the server does not know it, set `era: legacy`)",
		err, l.hasty)
}

// failedAlike reports whether two requests failed in the same way: with the same status, or with the
// same text.
func failedAlike(a, b error) bool {
	one, isStatus := errors.AsType[*httpclient.StatusError](a)
	if other, is := errors.AsType[*httpclient.StatusError](b); is && isStatus {
		return one.Code == other.Code
	}
	return a.Error() == b.Error()
}

// failed names the request that an error is of, unless the connection is to blame, for
// whoever reads it.
func failed(method string, err error) error {
	if isA[*transport.CallLostError](err) {
		return err
	}
	return fmt.Errorf("%s: %w", method, err)
}

// initialize begins a conversation of the session era: our newest revision of it is
// offered, any that we know is taken.
func (l *line) initialize(ctx context.Context, p *peer.Peer) (server, error) {
	declared := l.declares()
	l.mu.Lock()
	l.declared = declared
	l.mu.Unlock()
	offer := func(date string) ([]byte, error) {
		return p.Call(ctx, string(mcp.MethodInitialize), wire.Encode(map[string]any{
			"protocolVersion": date,
			"capabilities":    json.RawMessage(declared),
			"clientInfo":      l.b.set.ClientInfo,
		}))
	}
	result, err := offer(protocol.NewestLegacy().Date)
	if date := counterOffer(err); date != "" {
		l.log.Debug("backend refuses our revision and names others; offering one of them", "revision", date, "err", err)
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
		return server{}, failed(string(mcp.MethodInitialize), err)
	}
	var s server
	if err := json.Unmarshal(result, &s); err != nil {
		return server{}, errors.New("initialize: its answer is no InitializeResult")
	}
	s.Capabilities = capabilitiesOf(s.Capabilities)
	if _, known := protocol.FindRevision(s.ProtocolVersion); !known {
		l.log.Warn("backend speaks a revision that is not known; going on all the same",
			"revision", s.ProtocolVersion)
	}
	if err := p.Notify(string(mcp.MethodNotificationInitialized), nil); err != nil {
		return server{}, fmt.Errorf("initialized: %w", err)
	}
	return s, nil
}

// counterOffer returns the newest revision of the session era that the server names when it
// refuses initialize, other than the one that it was offered; "" = none. Servers name them in
// data.supported, in members of other names, or in the message alone.
func counterOffer(err error) string {
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

// declares returns the capabilities that the backend is told: those of the client
// in question, as it has declared them. Where several clients share the line there
// are none, for nobody knows whom the backend would be asking.
func (l *line) declares() []byte {
	session := l.session
	if session == "" && l.b.set.SingleClient {
		session = l.b.set.soleSession()
	}
	return l.b.set.capabilities(session)
}

// wasToldOther reports whether the backend is of the session era, and was told of other
// capabilities than those of a session: a client may find out what is there before it
// says what it can do, and one that has no session says it with each request. While the
// line is down nobody knows what the next server will be told; what waits for that is
// looked at when it has been (elsewhereLocked).
func (l *line) wasToldOther(session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer != nil && !l.server.stateless && l.toldOtherLocked(session)
}

func (l *line) toldOtherLocked(session string) bool {
	return l.b.set.isOpen(session) && !sameJSON(l.declared, l.b.set.capabilities(session))
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// met notes with whom the shared line is.
func (b *Backend) met(l *line, s server) {
	if l.own() {
		l.log.Debug("backend ready for a session", "server", s.name(), "revision", s.ProtocolVersion)
		return
	}
	b.mu.Lock()
	b.status.Server = s.name()
	b.status.Revision = s.ProtocolVersion
	b.mu.Unlock()
	l.log.Info("backend ready", "server", s.name(), "revision", s.ProtocolVersion)
}

// restoring is how long a backend may take to answer what it is told again. It is
// not waited for any longer: it may be of those that never answer such.
const restoring = 5 * time.Second

// restore tells a backend what the one before knew: the log level and the
// subscriptions. It returns the URIs of which an update may have been missed. One of
// the stateless era is told the level with each request, and the URIs by listen.
func (l *line) restore(ctx context.Context, p *peer.Peer, s server) (missed []string) {
	if s.stateless {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoring)
	defer cancel()
	var requests []wire.Message
	if level := l.wanted(); level != "" && s.has("logging") {
		requests = append(requests, setLevel(level))
		l.mu.Lock()
		l.level = level
		l.mu.Unlock()
	}
	l.mu.Lock()
	missed, l.adopted = l.subs.agreedTo(), nil
	l.mu.Unlock()
	l.repeat(ctx, p, append(requests, subscribeAll(l.b.permitted(missed))...))
	return missed
}

// repeat tells a backend what the one before knew.
func (l *line) repeat(ctx context.Context, p *peer.Peer, requests []wire.Message) {
	warned := false
	for some := range slices.Chunk(requests, 64) { // more than a few at once are refused by some
		for i, a := range p.RoundTripAll(ctx, some...) {
			if failure := a.Part(wire.PartError); a.Err == nil && failure != nil {
				a.Err = wire.ReadError(failure)
			}
			if a.Err != nil && !warned {
				warned = true
				l.log.Warn("backend could not be told again what it was told before", "method", some[i].Method(), "err", a.Err)
			}
		}
	}
}
