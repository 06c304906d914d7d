// Package gateway serves the clients: it contains their sessions, offers all clients one catalog,
// and forwards requests of clients to backends.
//
//	Serve (reads with a peer), or Open and Session.Receive
//	 └ Session.HandleRequest
//	    ├ modern request: serveModern
//	    └ legacy request: admit (lifecycle.go, a pure table), then dispatch by the table of
//	      methods (methods.go):
//	         ├ initialize, logging/setLevel    session_requests.go
//	         ├ the four lists                  lists.go
//	         ├ tasks/list                      session_task_list.go
//	         └ requests that a backend serves: sessionCall (session_call.go)
//	ServeRequest (open_requests.go): a modern request over HTTP
//	 └ clientConn.serveModern (stateless.go), by the same table
//	    The request belongs to a statelessClient (stateless_client.go). Its statelessCall
//	    (stateless_call.go) waits for a resumableCall (resumable_call.go, suspended_calls.go) if
//	    the method allows input requests. A later request may continue the call
//	    (continuation.go, stateless_consent.go). subscriptions/listen: listen.go
//
// A statelessCall (stateless_call.go) and a sessionCall both embed a clientCall (call.go), which
// they send as a contract.BackendCall. The response comes to clientCall.OnResponse, which chooses
// between fromLegacy and fromModern of the two types by the generation of the backend.
//
// Tasks are stored in a table of the session (session_tasks.go) or in one table for all stateless
// clients (stateless_task_table.go).
//
// From backends to clients (backend_messages.go):
//
//	Gateway.HandleRequest: serverRequest (server_request.go), peer.Send … OnResponse
//	Gateway.HandleNotification: to the session of the notification, or dropped
//
// The gateway translates between the generations. A request of a legacy backend to a modern
// client suspends the call (suspended_calls.go). An input_required result of a modern backend
// becomes requests to the session client (round_trips.go, client_inputs.go).
//
// The package uses backends only through [Backends]. clientCall.clientError creates the error for
// a call that failed; the text says whether the call may have run. A message that cannot be
// attributed to a session with certainty is delivered to no session.
//
// Lock order, outer first:
//
//	clientCall.mu → lifecycle.mu, clientLists.mu, callTracker.mu, sessionTasks.mu
//	clientCall.mu → statelessClients.mu, statelessClient.mu, statelessTasks.mu, usedTickets.mu
//	serverRequest.mu → lifecycle.mu, callTracker.mu, sessionTasks.mu
//	statelessClient.mu → resumableCall.mu → suspendedCalls.mu
//	statelessTasks.mu → legacyTaskBridge.mu
//	statelessClient.subscribing → listenRequest.mu
//	delayedUpdates.mu → lifecycle.mu, listenRequest.mu
//
// While callTracker.mu is locked, only locks of packages peer, backends and transport are taken.
// openSessions.mu, openSet.mu, workGroup.mu, lifecycle.mu, clientLists.mu, links.mu, recentIDs.mu
// and the locks of packages quota and ratelimit are innermost.
//
// clientCall.mu, serverRequest.mu, delayedUpdates.mu and listenRequest.mu stay locked during
// writes, so that messages are written in order. A write does not block.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/quota"
	"mcpgateway/internal/ratelimit"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Backends is the set of backends. Its methods may be called concurrently and do not block. A
// session is given by its id.
type Backends interface {
	// StartFor starts the backends if it is called for the first time. It does not wait for the
	// backends and returns the current view for a principal.
	StartFor(p *principal.Principal) *catalog.View
	// View returns the current view of the whole catalog.
	View() *catalog.View
	// ViewFor returns the current view of the part of the catalog that the profiles of a principal
	// permit. Its Changed is closed at the same time as that of View. The first call after a change
	// makes the view, which takes some milliseconds if there are thousands of entries.
	ViewFor(p *principal.Principal) *catalog.View
	// WhyUnavailable returns a backend and an error if an unknown tool name has the prefix of a
	// backend that has never listed its tools, was removed, is disabled or is misconfigured.
	// Otherwise, if no reason is known, or if the profiles of the principal do not permit the
	// backend, the error is nil.
	WhyUnavailable(p *principal.Principal, name string) (backend string, err error)
	// IsPermitted reports whether the profiles of a principal permit a backend.
	IsPermitted(p *principal.Principal, backend string) bool

	// OpenSession registers a session before anything is sent for it. p is the principal of the
	// client, nil without authentication. Capabilities are the client's, as JSON; per-session
	// connections declare exactly these. Modern marks a session that represents a stateless client.
	OpenSession(session string, p *principal.Principal, capabilities []byte, modern bool)
	// CloseSession removes a session and closes its per-session connections. It must be called
	// only when all calls of the session have ended.
	CloseSession(session string)

	// NewCall returns a call to a backend. A backend that is still starting gets the request later.
	// The timeout is the backend's call_timeout. If the configuration does not permit the request
	// when it is about to be sent, the call ends with [contract.ErrForbidden], and if its tool is
	// not approved, with a *[contract.NotApprovedError].
	//
	// The subscriptions of a session are restored on a new connection. While other sessions are
	// subscribed to the URI over the same connection, resources/unsubscribe is not sent, and the
	// result is {}.
	NewCall(backend string, r contract.BackendRequest,
		h contract.CallHandler) contract.BackendCall
	// SharesProcess reports whether the session may share its process of the backend with other
	// sessions.
	SharesProcess(backend, session string) bool
	// DeniedBy returns a backend whose filters deny an entry with this name; "" if there is none.
	DeniedBy(k catalog.Kind, name string) (backend string)
	// NotApproved returns a backend that hides a tool of this name because the tool is not
	// approved, and the error of a call of this tool; nil = there is no such backend, or the
	// profiles of the principal do not permit the tool.
	NotApproved(p *principal.Principal, name string) (backend string, err error)
	// Permits returns nil if the request may be sent to the backend now, and otherwise
	// [contract.ErrForbidden] or a *[contract.NotApprovedError]. Each call is checked when it is
	// sent; Permits is for suspended calls, which continue without being sent again.
	Permits(backend string, r contract.BackendRequest) error
	// SetLevel sets the session's log level at every backend that declares logging, now and on
	// each new connection. It calls done once, when the connected backends have responded or a
	// timeout has expired.
	SetLevel(session, level string, done func())
	// Notify forwards a client's notification to a backend, or to all backends if backend is "".
	// The notification is not sent over connections that other sessions share, and not to modern
	// backends.
	Notify(session, backend string, m wire.Message)
}

// Options are the options of a Gateway.
type Options struct {
	Backends    Backends
	Observers   Observers
	Tracer      Tracer // nil = requests are not traced
	Info        mcp.Implementation
	MaxInFlight int // requests in flight per session
	// MaxStatelessClients bounds the table of stateless clients. A client stays in the table while
	// it is in use and for five minutes after that. At the limit an idle client is evicted; if no
	// client is idle, requests of new clients are rejected. With authentication, each principal
	// gets at most half of the table. 0 = 10000.
	MaxStatelessClients int
	// Rates contains the rate limits of clients; nil = none.
	Rates *ratelimit.RateLimiter
	// time for calls in flight to end after the client has closed its side; 0 = 4 s. Only tests
	// set it.
	Grace        time.Duration
	DrainTimeout time.Duration // time for calls in flight to end when the gateway shuts down
	Log          *slog.Logger
	Mask         func(string) string // masks secrets in text for clients; nil = no masking
}

// A Gateway serves any number of clients. Create it with New.
type Gateway struct {
	Options

	info             []byte // Info, as JSON
	sealer           *mrtr.Sealer
	statelessClients statelessClients
	suspended        suspendedCalls
	usedTickets      mrtr.UsedTickets
	listens          quota.Counter[string] // open listenRequests

	statelessTasks statelessTasks
	resultBytes    quota.Bytes           // budget for stored results of tasks and suspended calls
	heldBytes      quota.Bytes           // budget for heldNotifications
	taskListeners  quota.Counter[string] // tasks polled for listeners

	grace    gracePeriods
	sessions openSessions

	requests    openSet[*openRequest] // their response is not written
	requestWork *workGroup            // goroutines that serve requests
}

// New returns a Gateway. It does not start the backends.
func New(o Options) *Gateway {
	if o.MaxStatelessClients == 0 {
		o.MaxStatelessClients = 10_000
	}
	if o.Grace == 0 {
		o.Grace = 4 * time.Second
	}
	if o.Mask == nil {
		o.Mask = func(s string) string { return s }
	}
	g := &Gateway{Options: o, info: wire.Encode(o.Info), sealer: mrtr.NewSealer()}
	g.grace.ctx, g.grace.end = context.WithCancel(context.Background())
	g.requestWork = newWorkGroup()
	return g
}

// gracePeriods are the periods in which sessions and modern requests that are closing wait for
// their calls in flight.
type gracePeriods struct {
	ctx     context.Context // done when EndGracePeriods was called
	end     context.CancelFunc
	waiting atomic.Int64 // waits that have not returned
}

// wait calls drain with a context that is done when parent is done, when the grace period has
// expired, or when EndGracePeriods is called.
func (p *gracePeriods) wait(parent context.Context, grace time.Duration,
	drain func(context.Context)) {
	ctx, cancel := context.WithTimeout(parent, grace)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	drain(ctx)
}

// EndGracePeriods ends all present and future grace periods: the calls in flight of a closing
// session end at once with an unknown outcome. It returns false if no session was waiting for
// calls in flight.
func (g *Gateway) EndGracePeriods() bool {
	waits := g.grace.waiting.Load() > 0
	g.grace.end()
	return waits
}

// Serve runs a session over conn, such as stdin and stdout, until the client disconnects or ctx is
// done. Then it rejects further requests, waits a grace period for requests in flight, cancels the
// rest and closes conn. If conn failed with [transport.ErrClosed] there is no grace period, because
// no response can be delivered.
//
// The error is nil if the client closed the connection, if conn failed with [transport.ErrClosed],
// or if ctx was done. Serve returns an error if conn failed otherwise. If the id is in use, Serve
// closes conn and returns an error.
//
// The id must be unique; if it is "", Serve generates an id. p is the authenticated
// identity of the client; tickets and tasks of one principal are not valid for another.
func (g *Gateway) Serve(
	ctx context.Context, id string, p *principal.Principal, conn transport.Conn,
) error {
	s := newSession(g, id, p, Stdio)
	s.peer = peer.New(conn, s, s.peerOptions())
	s.backlogged = s.peer.Backlogged
	if !g.sessions.add(s) {
		conn.Close()
		return fmt.Errorf("session %s: the id is already in use", s.id)
	}
	shutdownDone := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shutdownDone)
		s.Shutdown()
	})
	err := s.peer.Run(s.work.ctx)
	grace := g.Grace
	if errors.Is(err, transport.ErrClosed) {
		grace, err = 0, nil
	}
	s.closeWithGrace(grace)
	if !stop() {
		<-shutdownDone
		err = nil
	}
	s.cleanUp(err)
	return err
}

// Open begins a session like Serve, but without a reading goroutine: the caller passes incoming
// messages to [Session.Receive]. The caller must call [Session.Closed] after writer was closed by
// the session or by the caller. If the id is in use, Open closes writer and returns a session that
// is not registered.
func (g *Gateway) Open(id string, p *principal.Principal, t ClientTransport,
	writer transport.Writer) *Session {
	s := newSession(g, id, p, t)
	s.peer = peer.NewPush(writer, s, s.peerOptions())
	s.backlogged = s.peer.Backlogged
	if !g.sessions.add(s) {
		g.Log.Error("session with duplicate id rejected", "session", s.id)
		writer.Close()
	}
	return s
}

// RecordRejected audits a request that was rejected before a session received it. Session is the
// id of the session to which the request belongs, or its log id; "" = none.
func (g *Gateway) RecordRejected(
	session string, p *principal.Principal, m wire.Message, err *wire.Error,
) {
	if s := g.sessions.get(session); s != nil {
		s.recordRejected(m, err)
		return
	}
	g.record(TracedClient{Session: session, HTTP: true}, session, "", p, m,
		errorOutcome(Rejected, err))
}

// record notifies the observers and the Tracer of a request that did not become a call. If the
// request names its client, this name replaces client.
func (g *Gateway) record(
	from TracedClient, session, client string, p *principal.Principal, m wire.Message, o Outcome,
) {
	if !observed(m.Method()) {
		return
	}
	if protocol.IsModern(m) {
		client = clientName(m)
	}
	name := m.Name()
	if m.Method() == protocol.MethodResourcesRead {
		name = stringAt(m, "params", "uri")
	}
	c := CallInfo{
		Session: session, Client: client, Principal: p, ID: m.ID(), Method: m.Method(),
		Name: name, Arguments: m.Part(wire.PartArguments), Started: time.Now(),
	}
	if g.Tracer != nil {
		c.Trace = g.Tracer.Begin(&c, m, from)
	}
	g.Observers.begin(&c)
	if c.Trace != nil {
		c.Trace.End(&c, o)
	}
	g.Observers.end(&c, o)
}

// Clients returns the status of all sessions and stateless clients, those that connected first
// first. It may be called at any time.
func (g *Gateway) Clients() []ClientStatus { return clientsOf(g) }

// coalesce is the time in which catalog changes are collected into one notification.
const coalesce = 50 * time.Millisecond

// Run notifies clients of catalog changes until ctx is done. Then it ends the calls and tasks of
// stateless clients and returns ctx.Err(). All sessions and requests must have ended by then.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.statelessClients.close()
	defer g.statelessTasks.removeAll()
	defer g.requestWork.close()
	v := g.Backends.View()
	for {
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(coalesce):
		case <-ctx.Done():
			return ctx.Err()
		}
		v = g.Backends.View()
		for _, s := range g.sessions.all() {
			s.notifyCatalogChanged(s.view())
		}
		for _, client := range g.statelessClients.all() {
			for _, l := range client.listens.list() {
				l.catalogChanged(l.conn.view())
			}
		}
	}
}
