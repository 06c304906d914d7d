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
	set     *Set
	cfg     config.Backend // without its filters
	program string         // what it runs or where it is: tells it from another backend of its name
	filters atomic.Pointer[config.Filters]
	log     *slog.Logger
	says    *slog.Logger // for what it says, see sparing
	shared  *line
	places  *places
	intake  *transport.ReceiveQuota
	relist  chan struct{}          // 1 slot: some of its lists have changed
	flaws   map[catalog.Issue]bool // of what it lists, that were logged; the shared line's own
	defined map[string]string      // own name of a tool → hash of its definition, as last listed; likewise

	serving  context.Context // done when it is a member no more
	withdraw context.CancelFunc
	life     context.Context // done when its conversations must end
	kill     context.CancelCauseFunc
	running  sync.WaitGroup
	settled  chan struct{} // closed when status.Answered

	opening sync.Mutex // of one own line at a time: no one finds it before it has its subscriptions

	mu       sync.Mutex
	retired  bool
	own      map[string]*line // session → its line
	crowd    crowd            // of its own lines
	found    verdict          // of its era
	older    bool             // it was found to speak HTTP+SSE alone
	stale    [catalog.NumKinds]bool
	rumours  [catalog.NumKinds]bool // it has said that they have changed
	status   Status
	listErrs [catalog.NumKinds]error // why the last listing failed
	failures [catalog.NumKinds]failures
	listing  catalog.Listing
	raw      [catalog.NumKinds][]byte         // the lists as they were read, all of them
	items    [catalog.NumKinds][]catalog.Item // their entries, also those that the filters do not permit
	public   [catalog.NumKinds]bool           // the backend says that the list is for everybody
	answered bool                             // at some time: listing is its own, or it failed
	kept     bool                             // the file says that the verdict was costly
	leftOut  [catalog.NumKinds][]catalog.Issue
	repaired [catalog.NumKinds][]catalog.Issue
	odd      [catalog.NumKinds][]catalog.Issue
	headers  map[string][]byte           // own name of a tool → its schema, if it names headers
	due      [catalog.NumKinds]time.Time // when a list is good no longer; zero = there is no such time
}

func newBackend(s *Set, c config.Backend) *Backend {
	b := &Backend{
		set:     s,
		cfg:     c.Unfiltered(),
		program: programOf(&c),
		log:     s.Log.With("backend", c.Name),
		relist:  make(chan struct{}, 1),
		intake:  transport.NewReceiveQuota(s.intakeBound()/2, s.intake),
		settled: make(chan struct{}),
		status:  Status{Name: c.Name},
		listing: catalog.Listing{Backend: c.Name, Private: all},
	}
	filters := c.Filters()
	b.filters.Store(&filters)
	b.life, b.kill = context.WithCancelCause(s.life)
	b.serving, b.withdraw = context.WithCancel(b.life)
	b.says = spare(b.log)
	b.shared = newLine(b, "")
	b.places = newPlaces(c, func(w waiting) { b.line(w.c.SessionID, false).send(w) })
	return b
}

// private reports whether each session has a connection of its own to the
// backend, as long as that is of the session era. With a single client there is no need for one: what is shared is its
// own.
func (b *Backend) private() bool {
	if b.set.SingleClient {
		return false
	}
	return b.cfg.Sharing == "session" || b.cfg.Sharing != "shared" && b.cfg.URL != ""
}

// line returns the line over which a session's messages go. One of its own is made
// if it is to have one and there is none, or nil returned if find is set.
func (b *Backend) line(session string, find bool) *line {
	if session == "" {
		return b.shared
	}
	l := b.ownLine(session)
	switch {
	case l != nil:
		return l
	case !b.isApart(session):
		return b.shared
	case find:
		return nil
	}
	return b.open(session)
}

func (b *Backend) ownLine(session string) *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.own[session]
}

// isApart reports whether a session is to have a line of its own. That is not so if the
// backend is known to be of the stateless era: then all share one, but for clients of the
// session era whose own one it also speaks, and who are to have a connection each.
func (b *Backend) isApart(session string) bool {
	v, _ := b.verdict()
	switch {
	case b.set.SingleClient:
		return (v.era != stateless || v.both && b.cfg.URL == "") && b.shared.wasToldOther(session)
	case !b.private():
		return false
	}
	return v.era != stateless || v.both && b.isMirrored(session)
}

// open makes a session's own line, of which nothing comes if the session is over. What it is
// subscribed to over the shared line goes with it, for what its calls change is changed in
// another server from now on.
func (b *Backend) open(session string) *line {
	b.opening.Lock()
	defer b.opening.Unlock()
	if l := b.ownLine(session); l != nil {
		return l
	}
	l := newLine(b, session)
	if l.retired = b.isRetired(); l.retired {
		return l // what it is subscribed to is passed on from where it is
	}
	l.inherit(session, b.shared.drop(session, true))
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.set.isOpen(session):
		if b.own == nil {
			b.own = make(map[string]*line)
		}
		b.own[session] = l
	default:
		l.closed = true
		l.sup.stop(errSessionOver)
	}
	return l
}

// isRetired answers for as long as b.opening is held.
func (b *Backend) isRetired() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retired
}

// isMirrored reports whether a session's client is spoken for in its own era, if the
// backend has a choice.
func (b *Backend) isMirrored(session string) bool {
	return b.cfg.Sharing == "session" && b.set.hasSession(session)
}

// leave ends what the backend has for a session.
func (b *Backend) leave(session string) {
	b.places.leave(session)
	b.mu.Lock()
	l := b.own[session]
	delete(b.own, session)
	b.mu.Unlock()
	if l != nil {
		l.close()
	}
	b.shared.leave(session)
}

// Status tells how the backend is.
func (b *Backend) Status() Status {
	known, container := b.isKnown(), b.containerRemark()
	b.mu.Lock()
	s := b.status
	s.ContainerWarning = container
	s.Omitted, s.Repaired = slices.Concat(b.leftOut[:]...), slices.Concat(b.repaired[:]...)
	for k, odd := range b.odd {
		for _, f := range odd {
			if b.isOdd(catalog.Kind(k), f) {
				s.Suspicious = append(s.Suspicious, f)
			}
		}
	}
	b.mu.Unlock()
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	s.Settled = s.Settled || known
	s.State, s.Err, s.NextTry = b.shared.sup.stands(), b.shared.sup.problem(), b.shared.sup.due()
	return s
}

// offer returns what the backend offers as far as is known, and whether that
// can be relied on.
func (b *Backend) offer() (catalog.Listing, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.listing
	for k := range l.Unknown {
		l.Unknown[k] = b.raw[k] == nil
	}
	return l, b.answered
}

// excuse returns why the backend has never listed its tools, nil if it has.
func (b *Backend) excuse() error {
	b.mu.Lock()
	known, listErrs := b.raw[catalog.Tools] != nil, b.listErrs
	b.mu.Unlock()
	if known {
		return nil
	}
	return cmp.Or(b.shared.excuse(), cmp.Or(listErrs[:]...))
}

// answer notes that the backend has listed what it has, or cannot. Set, which is
// called with b.mu held, takes the news, if there is any. Unless it settles that, only the news is
// taken.
func (b *Backend) answer(settles bool, set func() (news bool)) {
	took := time.Since(b.shared.beginning())
	b.mu.Lock()
	if settles && !b.status.Settled {
		b.status.Settled = true
		close(b.settled)
	}
	b.status.StartupTime = took
	news := settles && !b.answered
	b.answered = b.answered || settles
	if set != nil && set() {
		news = true
	}
	b.mu.Unlock()
	if news && b.set.now().has(b) {
		b.set.publish()
	}
}

func (l *line) beginning() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began
}

// errStopped is why a backend's calls end when the gateway does, and
// errSessionOver why those of a session do.
var (
	errStopped     = errors.New("the gateway is ending")
	errSessionOver = errors.New("the session is over")
)
