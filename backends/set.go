// Package backends runs the MCP servers behind the gateway: it starts them, performs the handshake,
// lists their tools, prompts and resources, and restarts them when they end.
//
//	Set.Run ─ startLoop.runShared (one goroutine for each backend; run.go)
//	            └ connector: generation → dial → handshake → link.replayState, listenLoop →
//	              listReader, refresher until the connection ends
//	Set.NewCall ─ queuedCall.Send (call.go) ─ callLimiter ─ Backend.conn ─ backendConn.send
//	            └ link.trySend → [peer.Peer.TrySend], or its queues; each call ends in complete
//	Set.Apply ─ startNew ─ replaceTable (apply.go) ─ Backend.drain, redirect (drain.go)
//	inboundHandler (inbound.go), attribution.go ─ ClientSide, which knows the client sessions
//
// A [Set] contains all backends, in configuration order. Each backend has one shared connection
// ([backendConn]), and may have one more for each session. Only this package knows the protocol
// generation of a backend: callers pass requests without client metadata, and the field Modern of
// [contract.BackendResponse] contains the generation of the response.
//
// A backend that fails, hangs or sends garbage affects only its own tools. A backend waits for
// other backends only before its start, for a free slot (Options.StartParallel). The package
// refuses to guess the session of a message that a backend initiates: see inboundHandler.attribute.
//
// Lock order; the mutexes of limiter.Limiter, workers, responseGroup and clientSessions are
// innermost. Of lists.mu, sessionConns.mu, detection.mu and the mutexes of all backendConns, only
// one at a time is held:
//
//	Set.applying → all others
//	Set.mu → lists.mu → clientSessions.mu
//	sessionConns.opening → sessionConns.mu → clientSessions.mu
//	sessionConns.opening → backendConn.mu → clientSessions.mu, responseGroup.mu, lifetime.mu,
//	  and the locks of package peer
//	lifetime.mu → workers.mu
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

	"mcpgateway/backends/internal/containers"
	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Options of a Set. Apply replaces Backends, Catalog and CatalogWait later; see [Set.Apply].
type Options struct {
	Backends []config.Backend // backends in configuration order; disabled ones are not run
	Catalog  catalog.Options
	// how long the first list waits for backends that are starting
	CatalogWait time.Duration
	MaxMessage  int                // bytes of one message
	StateDir    string             // for catalog caches and container records, "" = none
	ClientInfo  mcp.Implementation // how the gateway identifies itself to backends
	Via         string             // the gateway in the HTTP header Via, "" = no such header
	// variables for child processes that identify the gateway; a child's configuration
	// overrides them
	ChildEnv map[string]string
	// removes secrets from the output of backends; nil = there are no secrets
	Mask        func(string) string
	NoRestart   bool // a backend that ends is not started again
	IgnoreCache bool // cached catalogs are not used in place of lists from the backends
	// the identity of this process as JSON, for records that outlive the process; nil = no
	// records
	ProcessID []byte
	// reports whether the process with the identity self is known to have ended
	HasExited    func(self []byte) bool
	NameOwners   catalog.Assignments // the backend of each name in the last run
	SingleClient bool                // there is at most one client; see Backend.hasPerSessionConns
	// number of processes that may be starting at one time; 0 = no limit
	StartParallel int
	// opens the Conn to a backend; nil = according to its configuration. Tests use it to connect to
	// backends in memory.
	Dial func(config.Backend) (transport.Conn, error)
	Log  *slog.Logger
	// log level of the lines that backends write to stderr
	StderrLevel slog.Level
}

// A Set contains the backends of a gateway, in configuration order. Create it with New.
type Set struct {
	Options
	table        atomic.Pointer[backendTable] // replaced with mu held
	view         atomic.Pointer[catalog.View]
	cachesLoaded sync.Once
	startOnce    sync.Once
	started      chan struct{} // closed by Start
	sessions     clientSessions
	clientInfo   []byte // Options.ClientInfo, encoded
	receiveQuota *transport.ReceiveQuota
	clients      ClientSide // set by Run before any message can arrive

	workers    workers
	startSlots supervise.StartSlots
	containers *containers.Records
	life       context.Context // done when the context of Run is done
	cancelLife context.CancelCauseFunc

	applying chan struct{} // capacity 1: one Apply at a time
	changes  atomic.Int64  // number of changes to publish so far

	mu         sync.Mutex
	published  int64     // value of changes when view was made
	launchedAt time.Time // when the backends were started; zero = not yet
	// runs from launchedAt for backendTable.catalogWait; nil = not launched
	waitTimer   *time.Timer
	waitOver    bool                // waitTimer has fired
	viewChanged chan struct{}       // closed when view is replaced
	loggedNames map[loggedName]bool // new names that were logged
	// the last snapshot whose lists clients could receive; at first, the names of the last run
	lastSnapshot *catalog.Snapshot
	// clients may have received lists in this run, so lastSnapshot is a snapshot of this run
	listsSent bool
	// number of characters cut from the instructions, as last logged; guarded by mu
	loggedCut int
}

// New returns a Set. It starts nothing.
func New(o Options) *Set {
	if o.Mask == nil {
		o.Mask = func(text string) string { return text }
	}
	s := &Set{
		Options: o,
		started: make(chan struct{}),
		containers: containers.New(containers.Options{StateDir: o.StateDir, Owner: o.ProcessID,
			HasExited: o.HasExited, Log: o.Log}),
		applying:     make(chan struct{}, 1),
		loggedNames:  make(map[loggedName]bool),
		clientInfo:   wire.Encode(o.ClientInfo),
		lastSnapshot: catalog.FromAssignments(o.NameOwners),
	}
	if o.StartParallel > 0 {
		s.startSlots = make(supervise.StartSlots, o.StartParallel)
	}
	s.receiveQuota = transport.NewReceiveQuota(s.receiveLimit(), nil)
	s.life, s.cancelLife = context.WithCancelCause(context.Background())
	none := &backendTable{}
	next, _ := s.plan(none, Change{Backends: o.Backends, Catalog: o.Catalog,
		CatalogWait: o.CatalogWait})
	s.table.Store(next)
	s.publish()
	return s
}

// receiveLimit returns the maximum total size of the incomplete incoming messages of all backends,
// in bytes. One backend may use half of it.
func (s *Set) receiveLimit() int64 { return 4 * int64(cmp.Or(s.MaxMessage, 64<<20)) }

// Run runs the backends from the call of Start until ctx is done, and returns when all of their
// processes, connections and goroutines have ended. The result is ctx.Err(). Messages that backends
// initiate are passed to the argument clients; if it is nil, requests are refused and notifications
// are dropped.
func (s *Set) Run(ctx context.Context, clients ClientSide) error {
	s.loadCaches()
	s.startWorkers(ctx, clients)
	if !s.awaitStart(ctx) {
		s.workers.close() // so that nothing is started
	}
	wait := s.launch()
	defer wait.Stop()
	<-ctx.Done()
	s.cancelLife(context.Cause(ctx))
	s.workers.close()
	s.workers.running.Wait()
	return ctx.Err()
}

// launch starts the backends; Apply starts backends that are added later. The method launch returns
// the timer for catalogWait.
func (s *Set) launch() *time.Timer {
	s.mu.Lock()
	s.launchedAt = time.Now()
	t := s.current()
	wait := time.AfterFunc(t.catalogWait, s.onWaitOver)
	s.waitTimer = wait
	s.mu.Unlock()
	if !s.goWorker(s.sweepContainers) {
		s.containers.SkipSweep()
	}
	for _, b := range t.all {
		b.start()
	}
	return wait
}

// maxLoggedLate bounds the number of names in the warning about backends that are not ready at the
// end of catalogWait.
const maxLoggedLate = 5

// onWaitOver publishes lists without the backends that are not settled yet, and logs the names of
// these backends.
func (s *Set) onWaitOver() {
	s.mu.Lock()
	s.waitOver = true
	s.mu.Unlock()
	t := s.current()
	var notReady []string
	for _, b := range t.all {
		if _, settled := b.lists.current(); !settled {
			notReady = append(notReady, b.cfg.Name)
		}
	}
	if n := len(notReady); n > 0 {
		names := strings.Join(notReady[:min(n, maxLoggedLate)], ", ")
		if n > maxLoggedLate {
			names += ", …"
		}
		s.Log.Warn("backends not ready yet; lists sent without them", "backend", names,
			"records", n, "dur", t.catalogWait)
	}
	s.publish()
}

// startDelay is the delay before the backends start if all their catalogs are cached. A client
// sends list requests right after its handshake, and gets the lists sooner if no processes are
// starting at that moment.
const startDelay = 30 * time.Millisecond

// awaitStart waits for the call of Start, and then for startDelay if all catalogs are cached. It
// reports false if ctx is done first.
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

// Start lets Run start the backends; only the first call of Start has this effect. Start does not
// wait for backends. It returns the current View, which contains the cached catalogs.
func (s *Set) Start() *catalog.View {
	s.loadCaches()
	v := s.View()
	s.startOnce.Do(func() { close(s.started) })
	return v
}

// loadCaches reads the cached catalogs, once, in parallel on all processors. Run calls it
// before a client connects, so that the first client does not wait for it.
func (s *Set) loadCaches() {
	s.cachesLoaded.Do(func() {
		var all errgroup.Group
		all.SetLimit(runtime.GOMAXPROCS(0))
		for _, b := range s.current().all {
			all.Go(func() error { b.known.load(s.IgnoreCache); return nil })
		}
		_ = all.Wait()
		s.publish()
	})
}

// View returns the current view of the catalog.
func (s *Set) View() *catalog.View { return s.view.Load() }

// WhyUnavailable explains why an unknown tool name with a backend's prefix cannot be called: the
// backend has never listed its tools, or was removed, disabled or misconfigured. It returns "" and
// nil otherwise.
func (s *Set) WhyUnavailable(name string) (backend string, err error) {
	t := s.current()
	for _, one := range t.catalog.ReservedBackends {
		if strings.HasPrefix(name, one+t.catalog.Separator) && len(one) > len(backend) {
			backend = one // the longest prefix wins
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

// Status returns the status of each backend, in configuration order. A backend that is not enabled
// has the state Disabled, and a backend with missing variables has the state Misconfigured.
func (s *Set) Status() []Status {
	t := s.current()
	all := make([]Status, 0, len(t.names))
	for _, name := range t.names {
		if b, ok := t.byName[name]; ok {
			all = append(all, b.Status())
		} else if t.misconfigured[name] != "" {
			all = append(all, Status{Name: name, State: Misconfigured,
				Err: errors.New(t.misconfigured[name]), Settled: true})
		} else {
			all = append(all, Status{Name: name, State: Disabled})
		}
	}
	return all
}

// Permits reports whether a request may be sent to a backend: the backend is in the current
// configuration, and its filters permit the request.
func (s *Set) Permits(backend string, r contract.BackendRequest) bool {
	b, ok := s.current().byName[backend]
	return ok && b.filters.permits(&r)
}

// SharesProcess reports whether a session may share a process of a backend with other clients.
func (s *Set) SharesProcess(backend, session string) bool {
	b := s.current().byName[backend]
	return b != nil && !s.SingleClient && !b.needsSessionConn(session)
}

// DeniedBy returns the first backend that lists a tool, a prompt or a resource under a name, with
// or without the backend's prefix, and whose filters deny it; "" if there is none. The result is
// for operators only, because a client must not learn whether a name is denied or does not exist.
func (s *Set) DeniedBy(k catalog.Kind, name string) (backend string) {
	for _, b := range s.current().all {
		if s.Denies(b.cfg.Name, k, name) {
			return b.cfg.Name
		}
	}
	return ""
}

// Denies reports whether a backend lists an entry under a name, with or without the backend's
// prefix, and its filters deny it.
func (s *Set) Denies(backend string, k catalog.Kind, name string) bool {
	t := s.current()
	b := t.byName[backend]
	if b == nil {
		return false
	}
	own := strings.TrimPrefix(name, backend+t.catalog.Separator)
	return b.lists.denies(k, name) || own != name && b.lists.denies(k, own)
}
