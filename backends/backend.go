package backends

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"mcpgateway/backends/internal/loglimit"
	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
)

// A State is the state of a backend.
type State = supervise.State

// The states of a backend.
const (
	Stopped     = supervise.Stopped
	Starting    = supervise.Starting
	Ready       = supervise.Ready
	Degraded    = supervise.Degraded
	BackingOff  = supervise.BackingOff
	BreakerOpen = supervise.BreakerOpen
	NeedsLogin  = supervise.NeedsLogin

	Disabled State = "disabled" // disabled in the configuration
	// a variable that it needs is missing: it is never started
	Misconfigured State = "misconfigured"
	// Control.Stop has stopped it
	StoppedByUser State = "stopped by user"
)

// States are all states of a backend.
var States = [...]State{Stopped, Starting, Ready, Degraded, BackingOff, BreakerOpen, NeedsLogin,
	Disabled, Misconfigured, StoppedByUser}

// A Backend is one MCP server and its known state.
type Backend struct {
	set *Set
	cfg config.Backend // see WithoutRuntimeKeys
	log *slog.Logger
	// rate-limited, for records that may be frequent, such as those about the output of the backend
	outputLog    *slog.Logger
	shared       *backendConn
	perSession   sessionConns
	limiter      *callLimiter
	receiveQuota *transport.ReceiveQuota
	filters      *filterSet
	lists        *lists
	reader       *listReader   // reads the lists over the shared connection
	login        *backendLogin // nil = requests are sent without access tokens
	known        knownCatalog
	lifetime     *lifetime
	instances    instances
}

func newBackend(s *Set, c config.Backend) *Backend {
	b := &Backend{
		set:          s,
		cfg:          c.WithoutRuntimeKeys(),
		log:          s.Log.With("backend", c.Name),
		limiter:      newCallLimiter(c),
		receiveQuota: transport.NewReceiveQuota(s.receiveLimit()/2, s.receiveQuota),
		filters:      new(filterSet),
	}
	filters := c.Filters()
	b.filters.inForce.Store(&filters)
	b.init(newDetection(&c), c.Tools.Pin)
	return b
}

// init sets what the backend does not share with its instances, or with the backend whose instance
// it is.
func (b *Backend) init(d *detection, pin config.Pin) {
	s, name := b.set, b.cfg.Name
	b.instances.b = b
	b.lifetime = newLifetime(s.workers)
	b.outputLog = loglimit.New(b.log)
	b.shared = newBackendConn(b, "")
	b.lists = newLists(name, b.filters,
		newToolPins(name, approveCommand(name, b.instances.owner), pin,
			s.publisher.approved.lock.Load()), &s.sessions, b.shared.wake)
	b.reader = &listReader{b: b}
	b.known = newKnownCatalog(b, d)
	b.login = newBackendLogin(b)
}

// hasPerSessionConns reports whether each session has its own connection to the backend while the
// backend is legacy. With a single client it reports false; see needsSessionConn.
func (b *Backend) hasPerSessionConns() bool {
	if b.set.SingleClient {
		return false
	}
	return b.cfg.Sharing == config.SharingSession ||
		b.cfg.Sharing != config.SharingShared && b.cfg.URL != ""
}

// conn returns the connection for a session's messages; "" = the shared connection. If the session
// needs a connection of its own and has none, conn opens one; if find is set, conn returns nil
// instead.
func (b *Backend) conn(session string, find bool) *backendConn {
	if session == "" {
		return b.shared
	}
	bc := b.perSession.get(session)
	switch {
	case bc != nil:
		return bc
	case !b.needsSessionConn(session):
		return b.shared
	case find:
		return nil
	}
	return b.perSession.open(b, session)
}

// needsSessionConn reports whether a session needs its own connection:
//
//   - With a single client, a session needs its own connection only while the shared connection is
//     up and legacy, and if the capabilities of the session differ from those that were declared
//     over the shared connection.
//   - With several clients, no session needs its own connection if Backend.hasPerSessionConns
//     reports false. Otherwise each session of a backend that is not known to be modern needs one.
//   - Sessions share one connection to a modern backend. The exception, with sharing: session, is
//     the session of a legacy client if the backend also supports legacy revisions: see
//     sessionFollowsClient.
func (b *Backend) needsSessionConn(session string) bool {
	d, _ := b.known.detection.generation()
	switch {
	case b.set.SingleClient:
		return (d.generation != protocol.Modern || d.bothGenerations && b.cfg.URL == "") &&
			b.shared.capabilitiesDiffer(session)
	case !b.hasPerSessionConns():
		return false
	}
	return d.generation != protocol.Modern || d.bothGenerations && b.sessionFollowsClient(session)
}

// sessionFollowsClient reports whether a session's connection uses the generation of the session's
// client if the backend supports both generations.
func (b *Backend) sessionFollowsClient(session string) bool {
	return b.cfg.Sharing == config.SharingSession && b.set.sessions.isClient(session)
}

// endSession closes the session's connection, fails the session's calls that wait for a slot and
// its queued subscribe calls, and removes its subscriptions.
func (b *Backend) endSession(session string) {
	failAll(b.limiter.slots.RemoveSession(session), notSent("%w", errSessionOver))
	if bc := b.perSession.removeSession(session); bc != nil {
		bc.close()
	}
	b.lists.forgetSession(session)
	b.shared.endSession(session)
}

// conns returns the shared and the per-session connections.
func (b *Backend) conns() []*backendConn {
	return append([]*backendConn{b.shared}, b.perSession.all()...)
}

// check returns an error if a request must not be sent: the error of permits, or a
// *[contract.QuestionError] if the client's user has to confirm the request first and has not. It
// is called immediately before the request is written, so that no spelling of a name, no wait in a
// queue and no reload avoids it. If nothing is configured, it does not parse the request, and
// allocates nothing.
func (b *Backend) check(r *contract.BackendRequest) error {
	if err := b.permits(r); err != nil {
		return err
	}
	return b.filters.checkConfirmed(r)
}

// isFor reports whether the clients of a principal may use the backend: their profiles permit the
// backend, and an instance is that of the principal.
func (b *Backend) isFor(p *principal.Principal) bool {
	return b.instances.serves(p.Key()) &&
		(p.ProfileKey() == "" || b.set.publisher.audiences.of(p).uses(b))
}

// setFilters replaces the filters, also those of the instances, updates the listing to the entries
// that the new filters permit, and restores the subscriptions that are permitted again. It reports
// false if the filters are unchanged.
func (b *Backend) setFilters(f config.Filters) bool {
	previous := b.filters.inForce.Load()
	if previous.Equal(f) {
		return false
	}
	for one := range b.instances.andSelf() {
		one.logUnmatched(one.lists.setFilters(f))
		for _, bc := range one.conns() {
			bc.resubscribePermitted(previous.Resources, f.Resources)
		}
	}
	return true
}

func (b *Backend) logUnmatched(texts []string) {
	for _, text := range texts {
		b.outputLog.Warn("filter globs without a match", "text", text)
	}
}

// logDeviations logs the deviations that were not logged yet, each once for each definition.
func (b *Backend) logDeviations() {
	s, tools := b.lists.takeUnlogged()
	if len(tools) == 0 {
		return
	}
	log, hint := b.outputLog, b.lists.pins.command+" shows and accepts changes"
	if _, known := s.approved(b.cfg.Name); !known {
		log.Warn("tools hidden: none of them is approved", "tool", firstNames(tools),
			"records", len(tools), "text", hint)
		return
	}
	ofNew, ofChanged := "tool_new: tool not approved",
		"tool_changed: definition of a tool differs from the approved one"
	if s.mode == config.PinBlock {
		ofNew, ofChanged = ofNew+", hidden", ofChanged+", hidden"
	}
	for _, tool := range tools[:min(len(tools), maxLoggedDeviations)] {
		if d := s.deviations[tool]; d.isNew {
			log.Warn(ofNew, "tool", tool, "text", hint)
		} else {
			log.Warn(ofChanged, "tool", tool, "changed", fieldList(d.fields), "text", hint)
		}
	}
	if more := len(tools) - maxLoggedDeviations; more > 0 {
		log.Warn("further tools not approved; see gateway check", "records", more)
	}
}

// whyUnlisted returns the reason that the backend has never listed its tools, nil if it has listed
// them or no reason is known.
func (b *Backend) whyUnlisted() error {
	if _, known := b.lists.tools(); known {
		return nil
	}
	errs := b.lists.errs()
	return cmp.Or(b.shared.whyUnavailable(), cmp.Or(errs[:]...))
}

// settle notes that the backend has failed, and publishes a View if that changes it.
func (b *Backend) settle() {
	if b.lists.settle(time.Since(b.shared.startTime())) {
		b.publish()
	}
}

// publish publishes a View if the backend is in the current table.
func (b *Backend) publish() {
	switch {
	case !b.set.current().has(b):
	case b.instances.owner != nil:
		b.set.publisher.publishInstance(b)
	default:
		b.set.publisher.publish()
	}
}

// needsNoStart reports whether the backend is started on demand: it is listed from its cache, or
// only its instances are used.
func (b *Backend) needsNoStart() bool {
	if b.set.NoRestart || b.set.IgnoreCache {
		return false
	}
	_, settled := b.lists.current()
	return b.cfg.Lazy && settled || b.instances.isUnused()
}

// withStartTimeout bounds ctx by start_timeout, if there is one; why is the cause of the timeout.
func (b *Backend) withStartTimeout(ctx context.Context,
	why error) (context.Context, context.CancelFunc) {
	if b.cfg.StartTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, b.cfg.StartTimeout, why)
}

// Errors of calls that end because the gateway shuts down, or because their session is over.
var (
	errStopped     = errors.New("the gateway is ending")
	errSessionOver = errors.New("the session is over")
)
