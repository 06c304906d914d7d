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

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/transport"
)

// A Status is what can be said of a backend at one moment. It tells of the
// connection that all sessions share.
type Status struct {
	Name        string
	State       State
	Err         error     // why it is not Ready, as far as there is a reason
	NextTry     time.Time // when it is tried again, zero if it is not waiting for that
	Server      string    // name/version of its serverInfo
	Revision    string
	Counts      [catalog.NumKinds]int // of what it lists and is allowed
	Settled     bool                  // since it was started: it is listed what it has, or it failed; or it need not be started for that
	StartupTime time.Duration         // from the start to that

	Unmatched        []string        // what its configuration says of tools, as config.Filter.Unmatched, that is of none of them
	Omitted          []catalog.Issue // of what it lists, what no client could bear, and why
	Repaired         []catalog.Issue // of what it lists, what was repaired, and how
	ContainerWarning string          // why its container may stay when it ends; "" = it does not, or there is none
	Suspicious       []catalog.Issue // of what is listed, what some clients may not bear, and why
}

// A Backend is one MCP server and what is known of it.
type Backend struct {
	set           *Set
	cfg           config.Backend // without its filters
	programID     string         // what it runs or where it is: tells it from another backend of its name
	filters       atomic.Pointer[config.Filters]
	log           *slog.Logger
	outputLog     *slog.Logger // for what it says, see sparing
	shared        *backendConn
	limiter       *callLimiter
	receiveQuota  *transport.ReceiveQuota
	refreshSignal chan struct{}          // 1 slot: some of its lists have changed
	loggedIssues  map[catalog.Issue]bool // of what it lists, that were logged; the shared line's own
	toolHashes    map[string]string      // own name of a tool → hash of its definition, as last listed; likewise

	serving     context.Context // done when it is a member no more
	stopServing context.CancelFunc
	life        context.Context // done when its conversations must end
	kill        context.CancelCauseFunc
	running     sync.WaitGroup
	settled     chan struct{} // closed when status.Answered

	opening sync.Mutex // of one own line at a time: no one finds it before it has its subscriptions

	mu                sync.Mutex
	draining          bool
	perSession        map[string]*backendConn // session → its line
	sessionBreaker    sessionBreaker          // of its own lines
	detected          detected                // of its era
	httpSSE           bool                    // it was found to speak HTTP+SSE alone
	stale             [catalog.NumKinds]bool
	announced         [catalog.NumKinds]bool // it has said that they have changed
	status            Status
	listErrs          [catalog.NumKinds]error // why the last listing failed
	failures          [catalog.NumKinds]listFailures
	listing           catalog.Listing
	raw               [catalog.NumKinds][]byte         // the lists as they were read, all of them
	items             [catalog.NumKinds][]catalog.Item // their entries, also those that the filters do not permit
	public            [catalog.NumKinds]bool           // the backend says that the list is for everybody
	everSettled       bool                             // at some time: listing is its own, or it failed
	cachedUnprobeable bool                             // the file says that the verdict was costly
	omitted           [catalog.NumKinds][]catalog.Issue
	repaired          [catalog.NumKinds][]catalog.Issue
	suspicious        [catalog.NumKinds][]catalog.Issue
	headerSchemas     map[string][]byte           // own name of a tool → its schema, if it names headers
	expiresAt         [catalog.NumKinds]time.Time // when a list is good no longer; zero = there is no such time
}

func newBackend(s *Set, c config.Backend) *Backend {
	b := &Backend{
		set:           s,
		cfg:           c.Unfiltered(),
		programID:     programID(&c),
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
	b.outputLog = rateLimited(b.log)
	b.shared = newBackendConn(b, "")
	b.limiter = newCallLimiter(c, func(q queuedCall) { b.conn(q.call.SessionID, false).send(q) })
	return b
}

// hasPerSessionConns reports whether each session has a connection of its own to the
// backend, as long as that is of the session era. With a single client there is no need for one: what is shared is its
// own.
func (b *Backend) hasPerSessionConns() bool {
	if b.set.SingleClient {
		return false
	}
	return b.cfg.Sharing == "session" || b.cfg.Sharing != "shared" && b.cfg.URL != ""
}

// backendConn returns the line over which a session's messages go. One of its own is made
// if it is to have one and there is none, or nil returned if find is set.
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

// needsSessionConn reports whether a session is to have a line of its own. That is not so if the
// backend is known to be of the stateless era: then all share one, but for clients of the
// session era whose own one it also speaks, and who are to have a connection each.
func (b *Backend) needsSessionConn(session string) bool {
	d, _ := b.generation()
	switch {
	case b.set.SingleClient:
		return (d.generation != modernGeneration || d.bothGenerations && b.cfg.URL == "") && b.shared.capabilitiesDiffer(session)
	case !b.hasPerSessionConns():
		return false
	}
	return d.generation != modernGeneration || d.bothGenerations && b.sessionFollowsClient(session)
}

// openSessionConn makes a session's own line, of which nothing comes if the session is over. What it is
// subscribed to over the shared line goes with it, for what its calls change is changed in
// another server from now on.
func (b *Backend) openSessionConn(session string) *backendConn {
	b.opening.Lock()
	defer b.opening.Unlock()
	if bc := b.sessionConn(session); bc != nil {
		return bc
	}
	bc := newBackendConn(b, session)
	if bc.draining = b.isDraining(); bc.draining {
		return bc // what it is subscribed to is passed on from where it is
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
		bc.sup.stop(errSessionOver)
	}
	return bc
}

// isDraining answers for as long as b.opening is held.
func (b *Backend) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining
}

// sessionFollowsClient reports whether a session's client is spoken for in its own era, if the
// backend has a choice.
func (b *Backend) sessionFollowsClient(session string) bool {
	return b.cfg.Sharing == "session" && b.set.isSessionClient(session)
}

// endSession ends what the backend has for a session.
func (b *Backend) endSession(session string) {
	b.limiter.endSession(session)
	b.mu.Lock()
	bc := b.perSession[session]
	delete(b.perSession, session)
	b.mu.Unlock()
	if bc != nil {
		bc.close()
	}
	b.shared.endSession(session)
}

// Status tells how the backend is.
func (b *Backend) Status() Status {
	known, container := b.needsNoStart(), b.containerWarning()
	b.mu.Lock()
	s := b.status
	s.ContainerWarning = container
	s.Omitted, s.Repaired = slices.Concat(b.omitted[:]...), slices.Concat(b.repaired[:]...)
	for k, odd := range b.suspicious {
		for _, f := range odd {
			if b.isSuspicious(catalog.Kind(k), f) {
				s.Suspicious = append(s.Suspicious, f)
			}
		}
	}
	b.mu.Unlock()
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	s.Settled = s.Settled || known
	s.State, s.Err, s.NextTry = b.shared.sup.State(), b.shared.sup.problem(), b.shared.sup.retryAt()
	return s
}

// currentListing returns what the backend offers as far as is known, and whether that
// can be relied on.
func (b *Backend) currentListing() (catalog.Listing, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.listing
	for k := range l.Unknown {
		l.Unknown[k] = b.raw[k] == nil
	}
	return l, b.everSettled
}

// whyUnlisted returns why the backend has never listed its tools, nil if it has.
func (b *Backend) whyUnlisted() error {
	b.mu.Lock()
	known, listErrs := b.raw[catalog.Tools] != nil, b.listErrs
	b.mu.Unlock()
	if known {
		return nil
	}
	return cmp.Or(b.shared.whyUnavailable(), cmp.Or(listErrs[:]...))
}

// settle notes that the backend has listed what it has, or cannot. Set, which is
// called with b.mu held, takes the news, if there is any. Unless it settles that, only the news is
// taken.
func (b *Backend) settle(settles bool, set func() (news bool)) {
	took := time.Since(b.shared.startTime())
	b.mu.Lock()
	if settles && !b.status.Settled {
		b.status.Settled = true
		close(b.settled)
	}
	b.status.StartupTime = took
	news := settles && !b.everSettled
	b.everSettled = b.everSettled || settles
	if set != nil && set() {
		news = true
	}
	b.mu.Unlock()
	if news && b.set.current().has(b) {
		b.set.publish()
	}
}

// errStopped is why a backend's calls end when the gateway does, and
// errSessionOver why those of a session do.
var (
	errStopped     = errors.New("the gateway is ending")
	errSessionOver = errors.New("the session is over")
)
