package backends

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/loglimit"
	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
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

	Disabled State = "disabled" // disabled in the configuration
	// a variable that it needs is missing: it is never started
	Misconfigured State = "misconfigured"
)

// A Status is the state of a backend at one moment. It describes the shared connection.
type Status struct {
	Name     string
	State    State
	Err      error                 // reason for a state other than Ready; nil = none is known
	NextTry  time.Time             // time of the next start, zero if none is scheduled
	Server   string                // name/version of its serverInfo
	Revision string                // protocol revision of the connection
	Counts   [catalog.NumKinds]int // number of permitted entries of each list
	// Settled is true if the backend has listed its catalog, or failed once, in this run of the
	// gateway. It is also true if the backend need not start to be listed (lazy, with a known
	// catalog), or is misconfigured.
	Settled     bool
	StartupTime time.Duration // time from the latest start to the latest listing or failure

	// globs of its filters that match none of its entries (see updateUnmatchedLocked), in the form
	// of config.Filter.Unmatched
	Unmatched []string
	// entries that were left out, and why
	Omitted  []catalog.Issue
	Repaired []catalog.Issue // entries that were repaired, and how
	// reason why its container may outlive the backend; "" = no reason is known, or no container
	ContainerWarning string
	// entries that some clients may not accept, and why
	Suspicious []catalog.Issue
}

// A Backend is one MCP server and its known state.
type Backend struct {
	set       *Set
	cfg       config.Backend // without filters and instructions, see WithoutRuntimeKeys
	serverKey string         // identifies the program or URL; see serverKeyOf
	filters   atomic.Pointer[config.Filters]
	log       *slog.Logger
	// rate-limited, for records that may be frequent, such as those about the output of the backend
	outputLog     *slog.Logger
	shared        *backendConn
	limiter       *callLimiter
	receiveQuota  *transport.ReceiveQuota
	refreshSignal chan struct{} // capacity 1: some of its lists must be read again
	// issues that were logged; used by the shared connection only
	loggedIssues map[catalog.Issue]bool
	// the backend's own name of a tool → hash of its definition as last listed; used by the
	// shared connection only
	toolHashes map[string]string

	serving     context.Context // done when it is removed from the table
	stopServing context.CancelFunc
	life        context.Context // done when its connections must end
	kill        context.CancelCauseFunc
	running     sync.WaitGroup
	settled     chan struct{} // closed when status.Settled becomes true

	// serializes the opening of per-session connections, so that no connection is visible before it
	// has the subscriptions of its session
	opening sync.Mutex

	mu             sync.Mutex
	draining       bool
	perSession     map[string]*backendConn  // session → its connection
	sessionBreaker supervise.SessionBreaker // shared by the per-session connections
	detected       detectedGeneration       // generation found by probes and handshakes
	httpSSE        bool                     // it was found to support HTTP+SSE only
	stale          [catalog.NumKinds]bool   // lists that must be read again
	// lists that the backend has announced as changed, or that refreshAll treats as changed
	announced [catalog.NumKinds]bool
	status    Status
	listErrs  [catalog.NumKinds]error // error of the last listing, nil if it succeeded
	failures  [catalog.NumKinds]listFailures
	listing   catalog.Listing
	raw       [catalog.NumKinds][]byte // the lists before filtering (MarshalList); nil = not read
	// entries of raw, including entries that the filters do not permit
	items  [catalog.NumKinds][]catalog.Item
	public [catalog.NumKinds]bool // the backend marks the list as public
	// everSettled is true if the catalog of the backend is known, from a listing of this run or
	// from the cache, or the backend has failed once. Unlike status.Settled it includes the cache.
	everSettled       bool
	cachedUnprobeable bool // the cache file marks it as unprobeable
	omitted           [catalog.NumKinds][]catalog.Issue
	repaired          [catalog.NumKinds][]catalog.Issue
	suspicious        [catalog.NumKinds][]catalog.Issue
	// the backend's own name of a tool → its schema, if the schema names headers
	headerSchemas map[string][]byte
	expiresAt     [catalog.NumKinds]time.Time // when a list expires; zero = never
}

func newBackend(s *Set, c config.Backend) *Backend {
	b := &Backend{
		set:           s,
		cfg:           c.WithoutRuntimeKeys(),
		serverKey:     serverKeyOf(&c),
		log:           s.Log.With("backend", c.Name),
		refreshSignal: make(chan struct{}, 1),
		receiveQuota:  transport.NewReceiveQuota(s.receiveLimit()/2, s.receiveQuota),
		settled:       make(chan struct{}),
		status:        Status{Name: c.Name},
		listing:       catalog.Listing{Backend: c.Name, Private: allKinds},
	}
	filters := c.Filters()
	b.filters.Store(&filters)
	b.life, b.kill = context.WithCancelCause(s.life)
	b.serving, b.stopServing = context.WithCancel(b.life)
	b.outputLog = loglimit.New(b.log)
	b.shared = newBackendConn(b, "")
	b.limiter = newCallLimiter(c, b.send)
	return b
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
	bc := b.sessionConn(session)
	switch {
	case bc != nil:
		return bc
	case !b.needsSessionConn(session):
		return b.shared
	case find:
		return nil
	}
	return b.openSessionConn(session)
}

func (b *Backend) sessionConn(session string) *backendConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.perSession[session]
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
	d, _ := b.generation()
	switch {
	case b.set.SingleClient:
		return (d.generation != protocol.Modern || d.bothGenerations && b.cfg.URL == "") &&
			b.shared.capabilitiesDiffer(session)
	case !b.hasPerSessionConns():
		return false
	}
	return d.generation != protocol.Modern || d.bothGenerations && b.sessionFollowsClient(session)
}

// openSessionConn creates a session's own connection, or returns the connection that another
// goroutine has just created. The session's accepted subscriptions move there from the shared
// connection, because from now on the session's calls change the state of another server process.
// If the session is over, the connection is closed from the start. If the backend is draining, the
// connection is not stored, and redirects its calls.
func (b *Backend) openSessionConn(session string) *backendConn {
	b.opening.Lock()
	defer b.opening.Unlock()
	if bc := b.sessionConn(session); bc != nil {
		return bc
	}
	bc := newBackendConn(b, session)
	if bc.draining = b.isDraining(); bc.draining {
		return bc // drain moves the session's subscriptions
	}
	bc.addSubscriptions(session, b.shared.dropSubscriptions(session, true))
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.set.isSessionOpen(session):
		if b.perSession == nil {
			b.perSession = make(map[string]*backendConn)
		}
		b.perSession[session] = bc
	default:
		bc.closed = true
		bc.sup.Stop(errSessionOver)
	}
	return bc
}

// isDraining reports whether the backend is draining. The result remains valid while b.opening is
// held.
func (b *Backend) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining
}

// sessionFollowsClient reports whether a session's connection uses the generation of the session's
// client if the backend supports both generations.
func (b *Backend) sessionFollowsClient(session string) bool {
	return b.cfg.Sharing == config.SharingSession && b.set.isSessionClient(session)
}

// endSession closes the session's connection, fails the session's calls that wait for a slot and
// its queued subscribe calls, and removes its subscriptions.
func (b *Backend) endSession(session string) {
	failAll(b.limiter.slots.RemoveSession(session), notSent("%w", errSessionOver))
	b.mu.Lock()
	bc := b.perSession[session]
	delete(b.perSession, session)
	b.mu.Unlock()
	if bc != nil {
		bc.close()
	}
	b.shared.endSession(session)
}

// Status returns the status of the backend.
func (b *Backend) Status() Status {
	lazy, warning := b.needsNoStart(), b.set.containers.Warning(b.containerBackend())
	b.mu.Lock()
	s := b.status
	s.ContainerWarning = warning
	s.Omitted, s.Repaired = slices.Concat(b.omitted[:]...), slices.Concat(b.repaired[:]...)
	for k, issues := range b.suspicious {
		for _, f := range issues {
			if b.isSuspicious(catalog.Kind(k), f) {
				s.Suspicious = append(s.Suspicious, f)
			}
		}
	}
	b.mu.Unlock()
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	s.Settled = s.Settled || lazy
	s.State, s.Err, s.NextTry = b.shared.sup.State(), b.shared.sup.Problem(), b.shared.sup.RetryAt()
	return s
}

// currentListing returns the known listing of the backend, and everSettled.
func (b *Backend) currentListing() (catalog.Listing, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.listing
	for k := range l.Unknown {
		l.Unknown[k] = b.raw[k] == nil
	}
	return l, b.everSettled
}

// whyUnlisted returns the reason that the backend has never listed its tools, nil if it has listed
// them or no reason is known.
func (b *Backend) whyUnlisted() error {
	b.mu.Lock()
	known, listErrs := b.raw[catalog.Tools] != nil, b.listErrs
	b.mu.Unlock()
	if known {
		return nil
	}
	return cmp.Or(b.shared.whyUnavailable(), cmp.Or(listErrs[:]...))
}

// settle notes that the backend has listed its catalog or failed. If counts is false, the backend
// does not become settled. update is called with b.mu held and reports whether there is anything to
// publish; nil = nothing. settle publishes a View if update reports true or everSettled becomes
// true, provided that the backend is in the current table.
func (b *Backend) settle(counts bool, update func() (changed bool)) {
	took := time.Since(b.shared.startTime())
	b.mu.Lock()
	if counts && !b.status.Settled {
		b.status.Settled = true
		close(b.settled)
	}
	b.status.StartupTime = took
	changed := counts && !b.everSettled
	b.everSettled = b.everSettled || counts
	if update != nil && update() {
		changed = true
	}
	b.mu.Unlock()
	if changed && b.set.current().has(b) {
		b.set.publish()
	}
}

// Errors of calls that end because the gateway shuts down, or because their session is over.
var (
	errStopped     = errors.New("the gateway is ending")
	errSessionOver = errors.New("the session is over")
)
