// Package backends runs the MCP servers behind the gateway: it starts them,
// shakes hands, reads what they offer, and starts them again when they end.
//
//	Set.Run ─ line.run (one goroutine each; restart.go)
//	            └ converse: of which era (era.go) → dial → greet → restore, listen (listen.go) → list → until it ends
//	Set.Send ─ Backend.line ─ line.send ─ peer.Offer, or a place among those that wait
//	Set.Apply ─ bringUp ─ swap (apply.go) ─ Backend.retire, passOn, adopt (retire.go)
//	handler (hear.go) ─ ClientSide, who know the sessions
//
// A [Set] is all of them, in the order of the configuration. To each backend there
// is one line that all share, and perhaps one for each session (line.go). Which era of
// MCP a backend is of is known here alone: calls come without the words of either
// (stateless.go), and answers say of which they are ([peer.Call].Stateless). It refuses
// to let one backend cost another anything: none waits for any other, and none that
// fails, hangs or talks nonsense is missed by more than its own tools. It refuses,
// too, to guess for which client something is that a backend says: see handler.owner.
package backends

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/errgroup"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Options of a Set. Backends, Catalog and Wait are what it begins with; see [Set.Apply].
type Options struct {
	Backends     []config.Backend // in their order; those that are not enabled are not run
	Catalog      catalog.Options
	CatalogWait  time.Duration          // for backends that are starting, before a first list is given without them
	MaxMessage   int                    // bytes of one message
	StateDir     string                 // directory of the last known catalogs, "" = none are kept
	ClientInfo   mcp.Implementation     // who we say we are
	Via          string                 // likewise, in the header of that name; "" = we do not say
	ChildEnv     map[string]string      // likewise, to children, beside their own environment; theirs wins
	Mask         func(string) string    // takes secrets out of what backends write; nil = there are none
	NoRestart    bool                   // a backend that ends is not started again
	IgnoreCache  bool                   // no listing of an earlier time stands in for a backend's own
	ProcessID    []byte                 // which process this is, as JSON, for records that outlive it; nil = there are none
	HasExited    func(self []byte) bool // whether the process of a record is known to have ended
	NameOwners   catalog.Assignments    // who had each name in the last run
	SingleClient bool                   // there is one client at most; see Backend.private
	// StartParallel is how many processes may be being started at one time; 0 = any number.
	StartParallel int
	// Dial opens the Conn to a backend; nil = as its configuration says. It is
	// where tests put a backend that lives in memory.
	Dial func(config.Backend) (transport.Conn, error)
	Log  *slog.Logger
	// StderrLevel is the level at which lines that backends write to stderr are logged.
	StderrLevel slog.Level
}

// A Set is the backends of a gateway. Create it with New.
type Set struct {
	Options
	table        atomic.Pointer[backendTable] // replaced with mu held, together with view
	view         atomic.Pointer[catalog.View]
	cachesLoaded sync.Once
	startOnce    sync.Once
	started      chan struct{} // closed by Start
	sessions     clientSessions
	clientInfo   []byte // Info
	receiveQuota *transport.ReceiveQuota
	clients      ClientSide // set by Run before anything can be heard

	workers         workers
	startSlots      startSlots
	containersSwept chan struct{}   // closed when the containers of killed gateways are stopped
	life            context.Context // done when Run ends
	cancelLife      context.CancelCauseFunc

	applying chan struct{} // 1 slot: there is one Apply at a time
	changes  atomic.Int64  // how often there was anything to publish

	mu           sync.Mutex
	published    int64               // how much of news is in the view
	launchedAt   time.Time           // when the backends were started, zero before it
	waitTimer    *time.Timer         // from then on: until members.wait is over
	waitOver     bool                // it is
	viewChanged  chan struct{}       // of the view at hand
	loggedNames  map[loggedName]bool // new names that were logged
	lastSnapshot *catalog.Snapshot   // that lists came of, or what is known of the last run
	listsSent    bool                // lists may have gone out: last is of this run
	loggedCut    int                 // characters of instructions that were left out, as logged last; guarded by mu
}

// New returns a Set. It starts nothing.
func New(o Options) *Set {
	if o.Mask == nil {
		o.Mask = func(text string) string { return text }
	}
	s := &Set{
		Options:         o,
		started:         make(chan struct{}),
		containersSwept: make(chan struct{}),
		applying:        make(chan struct{}, 1),
		loggedNames:     make(map[loggedName]bool),
		clientInfo:      wire.Encode(o.ClientInfo),
		lastSnapshot:    catalog.FromAssignments(o.NameOwners),
	}
	if o.StartParallel > 0 {
		s.startSlots = make(startSlots, o.StartParallel)
	}
	s.receiveQuota = transport.NewReceiveQuota(s.receiveLimit(), nil)
	s.life, s.cancelLife = context.WithCancelCause(context.Background())
	none := &backendTable{}
	next, _ := s.plan(none, Change{Backends: o.Backends, Catalog: o.Catalog, CatalogWait: o.CatalogWait})
	s.table.Store(next)
	s.publish()
	return s
}

// receiveLimit is how many bytes the messages that are being received from all backends may have
// before they are complete. One backend's may have half of them.
func (s *Set) receiveLimit() int64 { return 4 * int64(cmp.Or(s.MaxMessage, 64<<20)) }

// Run runs the backends from the moment that Start is called until ctx is done,
// and returns when nothing of them is left. What they say unasked goes to clients;
// nil = nobody hears it.
func (s *Set) Run(ctx context.Context, clients ClientSide) error {
	s.loadCaches()
	s.startWorkers(ctx, clients)
	if !s.awaitStart(ctx) {
		s.workers.close() // so that none is started any more
	}
	wait := s.launch()
	defer wait.Stop()
	<-ctx.Done()
	s.cancelLife(context.Cause(ctx))
	s.workers.close()
	s.workers.running.Wait()
	return ctx.Err()
}

// launch starts the backends. From now on those that come are started by Apply. It returns
// the timer of members.wait.
func (s *Set) launch() *time.Timer {
	s.mu.Lock()
	s.launchedAt = time.Now()
	t := s.current()
	wait := time.AfterFunc(t.catalogWait, s.onWaitOver)
	s.waitTimer = wait
	s.mu.Unlock()
	if !s.goWorker(s.sweepContainers) {
		close(s.containersSwept)
	}
	for _, b := range t.all {
		b.start()
	}
	return wait
}

// maxLoggedLate is how many backends are named that are not ready when the wait is over.
const maxLoggedLate = 5

// onWaitOver has lists go out without the backends that are not ready yet.
func (s *Set) onWaitOver() {
	s.mu.Lock()
	s.waitOver = true
	s.mu.Unlock()
	t := s.current()
	var late []string
	for _, b := range t.all {
		if _, answered := b.currentListing(); !answered {
			late = append(late, b.cfg.Name)
		}
	}
	if n := len(late); n > 0 {
		names := strings.Join(late[:min(n, maxLoggedLate)], ", ")
		if n > maxLoggedLate {
			names += ", …"
		}
		s.Log.Warn("backends are not ready yet; lists go out without them", "backend", names, "records", n, "dur", t.catalogWait)
	}
	s.publish()
}

// startDelay is how long the backends are held back when all their catalogs are
// known: a client asks for its list right after the handshake, and gets it sooner
// if twenty processes are not being started at that moment.
const startDelay = 30 * time.Millisecond

// awaitStart waits for Start; it reports false if ctx is done first.
func (s *Set) awaitStart(ctx context.Context) bool {
	select {
	case <-s.started:
	case <-ctx.Done():
		return false
	}
	if !s.View().Complete {
		return true
	}
	select {
	case <-time.After(startDelay):
		return true
	case <-ctx.Done():
		return false
	}
}

// Start lets Run begin, the first time it is called, and waits for no backend. It
// returns the View of this moment, which has the catalogs that are known from
// earlier times.
func (s *Set) Start() *catalog.View {
	s.loadCaches()
	v := s.View()
	s.startOnce.Do(func() { close(s.started) })
	return v
}

// loadCaches reads the catalogs that are known from earlier times, once, as many at a time as there are processors. Run
// does so before there is a client, so that the first one need not wait for it.
func (s *Set) loadCaches() {
	s.cachesLoaded.Do(func() {
		var all errgroup.Group
		all.SetLimit(runtime.GOMAXPROCS(0))
		for _, b := range s.current().all {
			all.Go(func() error { b.loadCache(); return nil })
		}
		_ = all.Wait()
		s.publish()
	})
}

// View returns what is known of the catalog now.
func (s *Set) View() *catalog.View { return s.view.Load() }

// Send sends a request to a backend, over the connection that the session c.Owner
// has to it, or ends it at once if it cannot be sent. A backend that is starting
// gets it when it has started; if it fails to, the call ends with the reason. One that has
// max_in_flight of them gets it when there is a place, and the call ends as one that was not sent if
// there is none for too long. The request has
// none of what the stateless era has in _meta: it is put there for a backend that is of
// it, and c.Stateless set. The errors -32020 and -32022 of such a backend are seen to
// here, and never come of a call; c.Again is not the caller's to set.
func (s *Set) Send(backend string, request wire.Message, c *peer.Call) {
	t := s.current()
	if b, ok := t.byName[backend]; ok {
		b.limiter.submit(queuedCall{request: request, call: c})
		return
	}
	c.Handler.OnResponse(wire.Message{}, t.whyAbsent(backend))
}

// Subscribe is Send for resources/subscribe, and for resources/unsubscribe if on
// is false. What a session is subscribed to is restored when the connection has
// to be made anew, and goes with the session to a connection of its own. It ends where it
// is held, whatever connection that is. A backend that others are subscribed to over the same one
// is not told to stop, and the call answered with {}. A backend of the stateless era is
// listened to instead, and the call answered when it has agreed to that; then the answer is
// of the gateway's own making.
func (s *Set) Subscribe(backend, uri string, on bool, request wire.Message, c *peer.Call) {
	t := s.current()
	b, ok := t.byName[backend]
	switch {
	case !ok:
		c.Handler.OnResponse(wire.Message{}, t.whyAbsent(backend))
	case on:
		b.subscribe(uri, request, c)
	default:
		b.unsubscribe(uri, request, c)
	}
}

// WhyUnavailable returns the backend whose tool a name that nobody has would be by its
// prefix, and why that backend has never listed any, or is none any more; err is nil
// if there is no such backend.
func (s *Set) WhyUnavailable(name string) (backend string, err error) {
	t := s.current()
	for _, one := range t.catalog.ReservedBackends {
		if strings.HasPrefix(name, one+t.catalog.Separator) && len(one) > len(backend) {
			backend = one // the longest name has it
		}
	}
	if backend == "" {
		return "", nil
	}
	if b := t.byName[backend]; b == nil {
		err = t.whyAbsent(backend)
	} else if err = b.whyUnlisted(); err == nil {
		backend = ""
	}
	return backend, err
}

// Cancel takes back what was sent to a backend, or waits to be.
func (s *Set) Cancel(backend string, c *peer.Call, params []byte) {
	c.Cancel(params) // before it is looked for: who passes it on, or has it wait, at this moment sees that
	for b := range s.current().withName(backend) {
		if b.limiter.cancel(c) {
			return
		}
		// It waits where it was sent, or for the line that all share, if that has turned out
		// to do for everybody, or does so no more.
		for _, bc := range []*backendConn{b.conn(c.SessionID, true), b.shared} {
			if bc != nil && bc.removeQueued(c) {
				c.Handler.OnResponse(wire.Message{}, peer.ErrCancelled)
				return
			}
		}
	}
}

// Status tells how each backend is, in their order; those that are not enabled are
// Disabled, those that lack variables Misconfigured.
func (s *Set) Status() []Status {
	t := s.current()
	all := make([]Status, 0, len(t.names))
	for _, name := range t.names {
		if b, ok := t.byName[name]; ok {
			all = append(all, b.Status())
		} else if t.misconfigured[name] != "" {
			all = append(all, Status{Name: name, State: Misconfigured, Err: errors.New(t.misconfigured[name]), Settled: true})
		} else {
			all = append(all, Status{Name: name, State: Disabled})
		}
	}
	return all
}
