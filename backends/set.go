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
	members  atomic.Pointer[members] // replaced with mu held, together with view
	view     atomic.Pointer[catalog.View]
	recalled sync.Once
	once     sync.Once
	started  chan struct{} // closed by Start
	sessions sessions
	client   []byte // Info
	intake   *transport.ReceiveQuota
	hearing  ClientSide // set by Run before anything can be heard

	runs   runs
	starts starts
	swept  chan struct{}   // closed when the containers of killed gateways are stopped
	life   context.Context // done when Run ends
	end    context.CancelCauseFunc

	applying chan struct{} // 1 slot: there is one Apply at a time
	news     atomic.Int64  // how often there was anything to publish

	mu        sync.Mutex
	published int64             // how much of news is in the view
	launched  time.Time         // when the backends were started, zero before it
	wait      *time.Timer       // from then on: until members.wait is over
	waited    bool              // it is
	changed   chan struct{}     // of the view at hand
	renamed   map[renaming]bool // new names that were logged
	last      *catalog.Snapshot // that lists came of, or what is known of the last run
	out       bool              // lists may have gone out: last is of this run
	cut       int               // characters of instructions that were left out, as logged last; guarded by mu
}

// New returns a Set. It starts nothing.
func New(o Options) *Set {
	if o.Mask == nil {
		o.Mask = func(text string) string { return text }
	}
	s := &Set{
		Options:  o,
		started:  make(chan struct{}),
		swept:    make(chan struct{}),
		applying: make(chan struct{}, 1),
		renamed:  make(map[renaming]bool),
		client:   wire.Encode(o.ClientInfo),
		last:     catalog.FromAssignments(o.NameOwners),
	}
	if o.StartParallel > 0 {
		s.starts = make(starts, o.StartParallel)
	}
	s.intake = transport.NewReceiveQuota(s.intakeBound(), nil)
	s.life, s.end = context.WithCancelCause(context.Background())
	none := &members{}
	next, _ := s.plan(none, Change{Backends: o.Backends, Catalog: o.Catalog, CatalogWait: o.CatalogWait})
	s.members.Store(next)
	s.publish()
	return s
}

// intakeBound is how many bytes the messages that are being received from all backends may have
// before they are complete. One backend's may have half of them.
func (s *Set) intakeBound() int64 { return 4 * int64(cmp.Or(s.MaxMessage, 64<<20)) }

// Run runs the backends from the moment that Start is called until ctx is done,
// and returns when nothing of them is left. What they say unasked goes to clients;
// nil = nobody hears it.
func (s *Set) Run(ctx context.Context, clients ClientSide) error {
	s.recall()
	s.begin(ctx, clients)
	if !s.awaitStart(ctx) {
		s.runs.close() // so that none is started any more
	}
	wait := s.launch()
	defer wait.Stop()
	<-ctx.Done()
	s.end(context.Cause(ctx))
	s.runs.close()
	s.runs.running.Wait()
	return ctx.Err()
}

// launch starts the backends. From now on those that come are started by Apply. It returns
// the timer of members.wait.
func (s *Set) launch() *time.Timer {
	s.mu.Lock()
	s.launched = time.Now()
	m := s.now()
	wait := time.AfterFunc(m.wait, s.waitIsOver)
	s.wait = wait
	s.mu.Unlock()
	if !s.spawn(s.sweepContainers) {
		close(s.swept)
	}
	for _, b := range m.all {
		b.start()
	}
	return wait
}

// maxLateNames is how many backends are named that are not ready when the wait is over.
const maxLateNames = 5

// waitIsOver has lists go out without the backends that are not ready yet.
func (s *Set) waitIsOver() {
	s.mu.Lock()
	s.waited = true
	s.mu.Unlock()
	m := s.now()
	var late []string
	for _, b := range m.all {
		if _, answered := b.offer(); !answered {
			late = append(late, b.cfg.Name)
		}
	}
	if n := len(late); n > 0 {
		names := strings.Join(late[:min(n, maxLateNames)], ", ")
		if n > maxLateNames {
			names += ", …"
		}
		s.Log.Warn("backends are not ready yet; lists go out without them", "backend", names, "records", n, "dur", m.wait)
	}
	s.publish()
}

// runs is what runs while Run does.
type runs struct {
	mu      sync.Mutex
	ctx     context.Context             // Run's, nil before it
	early   []func(ctx context.Context) // what is to run as soon as Run does
	over    bool                        // Run is ending
	running sync.WaitGroup
}

func (s *Set) begin(ctx context.Context, clients ClientSide) {
	s.hearing = clients
	r := &s.runs
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = ctx
	for _, f := range r.early {
		r.running.Go(func() { f(ctx) })
	}
	r.early = nil
}

// close has nothing be spawned any more.
func (r *runs) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// spawn has f run for as long as Run does; it reports false if that has ended.
func (s *Set) spawn(f func(ctx context.Context)) bool {
	r := &s.runs
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return false
	case r.ctx == nil:
		r.early = append(r.early, f)
	default:
		r.running.Go(func() { f(r.ctx) })
	}
	return true
}

func (s *Set) clients() ClientSide {
	if s.hearing == nil {
		return noClients{}
	}
	return s.hearing
}

// noClients are what a Set has that was run without any.
type noClients struct{}

func (noClients) HandleRequest(_, _ string, r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
}

func (noClients) HandleNotification(_, _ string, _ wire.Message, _ peer.Origin) {}

// headStart is how long the backends are held back when all their catalogs are
// known: a client asks for its list right after the handshake, and gets it sooner
// if twenty processes are not being started at that moment.
const headStart = 30 * time.Millisecond

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
	case <-time.After(headStart):
		return true
	case <-ctx.Done():
		return false
	}
}

// Start lets Run begin, the first time it is called, and waits for no backend. It
// returns the View of this moment, which has the catalogs that are known from
// earlier times.
func (s *Set) Start() *catalog.View {
	s.recall()
	v := s.View()
	s.once.Do(func() { close(s.started) })
	return v
}

// recall reads the catalogs that are known from earlier times, once, as many at a time as there are processors. Run
// does so before there is a client, so that the first one need not wait for it.
func (s *Set) recall() {
	s.recalled.Do(func() {
		var all errgroup.Group
		all.SetLimit(runtime.GOMAXPROCS(0))
		for _, b := range s.now().all {
			all.Go(func() error { b.recall(); return nil })
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
	m := s.now()
	if b, ok := m.byName[backend]; ok {
		b.places.enter(waiting{m: request, c: c})
		return
	}
	c.Handler.OnResponse(wire.Message{}, m.absent(backend))
}

// Subscribe is Send for resources/subscribe, and for resources/unsubscribe if on
// is false. What a session is subscribed to is restored when the connection has
// to be made anew, and goes with the session to a connection of its own. It ends where it
// is held, whatever connection that is. A backend that others are subscribed to over the same one
// is not told to stop, and the call answered with {}. A backend of the stateless era is
// listened to instead, and the call answered when it has agreed to that; then the answer is
// of the gateway's own making.
func (s *Set) Subscribe(backend, uri string, on bool, request wire.Message, c *peer.Call) {
	m := s.now()
	b, ok := m.byName[backend]
	switch {
	case !ok:
		c.Handler.OnResponse(wire.Message{}, m.absent(backend))
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
	m := s.now()
	for _, one := range m.catalog.ReservedBackends {
		if strings.HasPrefix(name, one+m.catalog.Separator) && len(one) > len(backend) {
			backend = one // the longest name has it
		}
	}
	if backend == "" {
		return "", nil
	}
	if b := m.byName[backend]; b == nil {
		err = m.absent(backend)
	} else if err = b.excuse(); err == nil {
		backend = ""
	}
	return backend, err
}

// Cancel takes back what was sent to a backend, or waits to be.
func (s *Set) Cancel(backend string, c *peer.Call, params []byte) {
	c.Cancel(params) // before it is looked for: who passes it on, or has it wait, at this moment sees that
	for b := range s.now().everyone(backend) {
		if b.places.takeBack(c) {
			return
		}
		// It waits where it was sent, or for the line that all share, if that has turned out
		// to do for everybody, or does so no more.
		for _, l := range []*line{b.line(c.SessionID, true), b.shared} {
			if l != nil && l.takeBack(c) {
				c.Handler.OnResponse(wire.Message{}, peer.ErrCancelled)
				return
			}
		}
	}
}

// Status tells how each backend is, in their order; those that are not enabled are
// Disabled, those that lack variables Misconfigured.
func (s *Set) Status() []Status {
	m := s.now()
	all := make([]Status, 0, len(m.names))
	for _, name := range m.names {
		if b, ok := m.byName[name]; ok {
			all = append(all, b.Status())
		} else if m.faults[name] != "" {
			all = append(all, Status{Name: name, State: Misconfigured, Err: errors.New(m.faults[name]), Settled: true})
		} else {
			all = append(all, Status{Name: name, State: Disabled})
		}
	}
	return all
}
