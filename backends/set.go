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
// Lock order, which lock_order.go has as ranks; the mutex of limiter.Limiter is also innermost:
//
//	Set.applying → all others
//	startup.mu → publisher.mu → lists.mu → clientSessions.mu
//	audienceView.mu → no other
//	sessionConns.opening → sessionConns.mu → clientSessions.mu
//	sessionConns.opening → backendConn.mu → clientSessions.mu, responseGroup.mu, lifetime.mu,
//	  and the locks of package peer
//	lifetime.mu → workers.mu
package backends

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/errgroup"

	"mcpgateway/backends/internal/containers"
	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Options of a Set. Apply replaces Backends, Catalog, Profiles and CatalogWait later; see
// [Set.Apply].
type Options struct {
	Backends []config.Backend // backends in configuration order; disabled ones are not run
	Catalog  catalog.Options
	Profiles map[string]config.Profile // by name; see principal.Principal
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
	Lock         *pins.Lock          // content of the lock file; nil = empty
	SingleClient bool                // there is at most one client; see Backend.hasPerSessionConns
	// number of processes that may be starting at one time; 0 = no limit
	StartParallel int
	// opens the Conn to a backend; nil = according to its configuration. Tests use it to connect to
	// backends in memory.
	Dial func(config.Backend) (transport.Conn, error)
	// the stored logins at servers that use OAuth; nil = OAuth is not used
	Logins *oauthclient.Store
	// the principal whose logins backends with oauth.per: principal use for clients without
	// authentication; nil = the gateway
	LoginAs *principal.Principal
	// LoginPage returns the URL of a page at which the user of a session can log in to a backend,
	// and the channel for Done of [contract.QuestionError]. It does not block. nil = there are no
	// such pages.
	LoginPage func(backend, session string, p *principal.Principal,
		login *oauthclient.Authorization) (url string, done <-chan struct{}, err error)
	// CompleteLogin ends the pages of a login that was completed elsewhere. It does not block. nil
	// = there are no such pages.
	CompleteLogin func(login *oauthclient.Authorization)
	// called with each access token and client secret before its use, so that it can be masked; nil
	// = not called. owner names the backend, and the principal whose login it is.
	OnSecret func(owner, secret string)
	// called when the connections of a principal to a backend have ended, so that the secrets with
	// this owner are not used any more; nil = not called. It does not block.
	OnSecretsUnused func(owner string)
	Log             *slog.Logger
	// log level of the lines that backends write to stderr
	StderrLevel slog.Level
	// context of the log records of these lines, by which a handler recognizes them; nil =
	// context.Background
	StderrContext context.Context
}

// A Set contains the backends of a gateway, in configuration order. Create it with New.
type Set struct {
	Options
	publisher    publisher // the table of backends, and the View
	startup      startup
	sessions     clientSessions
	clients      ClientSide // set by Run before any message can arrive
	clientInfo   []byte     // Options.ClientInfo, encoded
	receiveQuota *transport.ReceiveQuota
	workers      *workers
	startSlots   supervise.StartSlots
	containers   *containers.Records
	applying     chan struct{} // capacity 1: one Apply at a time
	toolsListed  chan struct{} // see ToolsListed
	changes      changeSignal  // of the status of backends
}

// New returns a Set. It starts nothing.
func New(o Options) *Set {
	if o.Mask == nil {
		o.Mask = func(text string) string { return text }
	}
	if o.StderrContext == nil {
		o.StderrContext = context.Background()
	}
	s := &Set{
		Options: o,
		containers: containers.New(containers.Options{StateDir: o.StateDir, Owner: o.ProcessID,
			HasExited: o.HasExited, Log: o.Log}),
		applying:    make(chan struct{}, 1),
		toolsListed: make(chan struct{}, 1),
		clientInfo:  wire.Encode(o.ClientInfo),
		workers:     newWorkers(),
	}
	s.startup.requested = make(chan struct{})
	s.publisher.log, s.publisher.lastSnapshot = o.Log, catalog.FromAssignments(o.NameOwners)
	s.publisher.approved.log = o.Log
	s.publisher.approved.lock.Store(cmp.Or(o.Lock, &pins.Lock{}))
	s.publisher.names = nameLog{log: o.Log, logged: make(map[loggedName]bool)}
	if o.StartParallel > 0 {
		s.startSlots = make(supervise.StartSlots, o.StartParallel)
	}
	s.receiveQuota = transport.NewReceiveQuota(s.receiveLimit(), nil)
	none := &backendTable{}
	next, _ := s.plan(none, Change{Backends: o.Backends, Catalog: o.Catalog,
		CatalogWait: o.CatalogWait})
	s.publisher.table.Store(next)
	s.publisher.setProfiles(newProfileTable(o.Profiles), func() {})
	return s
}

func (s *Set) current() *backendTable { return s.publisher.table.Load() }

// receiveLimit returns the maximum total size of the incomplete incoming messages of all backends,
// in bytes. One backend may use half of it.
func (s *Set) receiveLimit() int64 { return 4 * int64(cmp.Or(s.MaxMessage, 64<<20)) }

// Run runs the backends from the call of Start until ctx is done, and returns when all of their
// processes, connections and goroutines have ended. The result is ctx.Err(). Messages that backends
// initiate are passed to the argument clients; if it is nil, requests are refused and notifications
// are dropped.
func (s *Set) Run(ctx context.Context, clients ClientSide) error {
	s.loadCaches()
	s.clients = clients
	if clients == nil {
		s.clients = noClients{}
	}
	s.workers.start(ctx)
	if !s.awaitStart(ctx) {
		s.workers.close() // so that nothing is started
	}
	wait := s.launch()
	defer wait.Stop()
	<-ctx.Done()
	s.workers.end(context.Cause(ctx))
	s.workers.close()
	s.workers.running.Wait()
	return ctx.Err()
}

// launch starts the backends; Apply starts backends that are added later. The method launch returns
// the timer for catalogWait.
func (s *Set) launch() *time.Timer {
	s.startup.mu.Lock()
	t := s.current()
	wait := time.AfterFunc(t.catalogWait, s.onWaitOver)
	s.startup.at, s.startup.waitTimer = time.Now(), wait
	all := slices.Collect(t.running()) // an instance that is opened from now on is started then
	s.startup.mu.Unlock()
	if !s.workers.goWorker(s.sweepContainers) {
		s.containers.SkipSweep()
	}
	for _, b := range all {
		b.start()
	}
	return wait
}

// sweepContainers stops the containers of gateways that were killed.
func (s *Set) sweepContainers(ctx context.Context) {
	s.containers.Sweep(ctx, func() (all []containers.Backend) {
		for _, b := range s.current().all {
			all = append(all, b.containerBackend())
		}
		return all
	}, func() []string { return childEnv(nil, s.ChildEnv, nil) })
}

// maxLoggedLate bounds the number of names in the warning about backends that are not ready at the
// end of catalogWait.
const maxLoggedLate = 5

// onWaitOver publishes lists without the backends that are not settled yet, and logs the names of
// these backends.
func (s *Set) onWaitOver() {
	s.publisher.endWait()
	t := s.current()
	var notReady []string
	for _, b := range t.all {
		if !newCurrentListing(b).settled {
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
	s.publisher.publish()
}

// startDelay is the delay before the backends start if all their catalogs are cached. A client
// sends list requests right after its handshake, and gets the lists sooner if no processes are
// starting at that moment.
const startDelay = 30 * time.Millisecond

// awaitStart waits for the call of Start, and then for startDelay if all catalogs are cached. It
// reports false if ctx is done first.
func (s *Set) awaitStart(ctx context.Context) bool {
	select {
	case <-s.startup.requested:
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

// Start lets Run start the backends; only the first call has this effect. It does not wait for
// backends. A backend with oauth.per: principal starts for each principal when StartFor is called.
func (s *Set) Start() {
	s.loadCaches()
	s.startup.once.Do(func() { close(s.startup.requested) })
}

// StartFor is Start for a client. It returns the current View for the principal, which contains the
// cached catalogs.
func (s *Set) StartFor(p *principal.Principal) *catalog.View {
	s.loadCaches()
	v := s.ViewFor(p)
	s.startup.once.Do(func() { close(s.startup.requested) })
	return v
}

// loadCaches reads the cached catalogs, once, in parallel on all processors. Run calls it
// before a client connects, so that the first client does not wait for it.
func (s *Set) loadCaches() {
	s.startup.cachesLoaded.Do(func() {
		var all errgroup.Group
		all.SetLimit(runtime.GOMAXPROCS(0))
		for _, b := range s.current().all {
			all.Go(func() error {
				b.known.load(s.IgnoreCache)
				b.logDeviations()
				return nil
			})
		}
		_ = all.Wait()
		s.publisher.publish()
	})
}

// NewCall returns a call to a backend, over the connection of the session r.Session. Its Send fails
// the call at once if it cannot be sent.
//
//   - While the backend is starting, the call is queued. If the start fails, the call ends
//     with the reason.
//   - While max_in_flight calls are in flight, the call is queued for a slot. A call that gets no
//     slot within queue_wait ends as not sent, and so does a call that finds the queue full.
//   - A call that a modern backend refuses with the error -32020 or -32022 is sent again, so a call
//     never ends with them.
//
// Subscriptions of a session are restored on a new connection. They move to the session's own
// connection when that is opened. A resources/unsubscribe goes to the connection that has the
// subscription. If other sessions are subscribed to the same URI over a shared connection, it is
// not sent, and its result is {}. For a modern backend, a resources/subscribe adds the URI to
// subscriptions/listen, and the gateway itself responds once the backend has acknowledged it. The
// response to a resources/unsubscribe follows at once.
func (s *Set) NewCall(backend string, r contract.BackendRequest,
	h contract.CallHandler) contract.BackendCall {
	if r.Builtin {
		return newLoginCall(s, backend, r, h)
	}
	return newCall(s, backend, r, h)
}

// RetryFailed lets per-session connections be opened at intervals of retryStep, or at shorter
// intervals if the last connection would wait longer than retrySpread. Many handshakes at the same
// moment would delay the calls of all backends.
const (
	retryStep   = 20 * time.Millisecond
	retrySpread = time.Second
)

// RetryFailed ends the pauses of the backends that have failed, resets their failures and returns
// their names. It opens shared connections at once, and lets per-session connections be opened one
// after the other, within retrySpread, if there is demand for them. It does not wait for any
// connection.
func (s *Set) RetryFailed() (names []string) {
	var perSession []*backendConn
	for b := range s.current().running() {
		failed := false
		b.perSession.resetBreaker()
		for _, bc := range b.conns() {
			switch {
			case !bc.isBackingOff():
				continue
			case bc.isPerSession():
				perSession = append(perSession, bc)
			default:
				bc.starts.retryWithin(0)
			}
			failed = true
		}
		if failed && !slices.Contains(names, b.cfg.Name) {
			names = append(names, b.cfg.Name)
		}
	}
	step := min(retryStep, retrySpread/time.Duration(max(len(perSession), 1)))
	for i, bc := range perSession {
		bc.starts.retryWithin(time.Duration(i) * step)
	}
	return names
}

// Login returns the OAuth authorization of a backend, nil if there is no such backend, or if it
// needs none.
func (s *Set) Login(backend string) *oauthclient.Authorization {
	if b := s.current().byName[backend]; b != nil && b.login != nil {
		return b.login.Authorization
	}
	return nil
}
