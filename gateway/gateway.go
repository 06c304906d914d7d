// Package gateway is the client-facing side: it holds the sessions, offers all clients one
// catalog, and forwards their requests to the backends.
//
//	Serve (reads with a peer), or Open and Session.Receive
//	 └ Session.HandleRequest
//	    ├ modern request: handleStateless (stateless.go). It belongs to a statelessClient
//	    │    (stateless_client.go) and becomes a resumableCall (resumable_call.go,
//	    │    suspended_calls.go), which a later request may continue (continuation.go,
//	    │    url_elicitation.go). subscriptions/listen: listen.go
//	    └ legacy request: admit (lifecycle.go, a pure table), then dispatch (session.go)
//	         ├ initialize, logging/setLevel    lifecycle.go
//	         ├ the four lists                  lists.go
//	         ├ tasks/list                      session_task_list.go
//	         └ requests that a backend serves, by their methodSpec (methods.go):
//	           tools, prompts, resources, completion, tasks
//	              call.go: Backends.Send … clientCall.OnResponse
//
// Tasks are kept in a table of the session (session_tasks.go) or of the principal
// (stateless_task_table.go).
//
// From backends to clients:
//
//	Gateway.HandleRequest: serverRequest (server_request.go), peer.Send … OnResponse
//	Gateway.HandleNotification: notify.go; to the one session concerned, or dropped
//
// The gateway translates between the generations. A request of a legacy backend to a modern
// client suspends the call (suspended_calls.go). An input_required result of a modern backend
// becomes requests to the session client (round_trips.go).
//
// The package knows a backend only through [Backends]. A call that failed gets its error text, with
// its outcome, from clientCall.clientError. A message that cannot be attributed to a session with
// certainty reaches no session.
//
// Lock order, outer first:
//
//	clientCall.mu → Session.mu, sessionTasks.mu
//	clientCall.mu → statelessClients.mu, statelessClient.mu, statelessTasks.mu, usedTickets.mu
//	serverRequest.mu → Session.mu
//	statelessClient.mu → resumableCall.mu → suspendedCalls.mu
//	statelessTasks.mu → legacyTaskBridge.mu
//	delayedUpdates.mu → listenRequest.mu
//
// Below Session.mu only locks of packages peer, backends and transport are taken. Gateway.mu,
// listeners.mu and the locks of quota.Counter are innermost. A few locks are held during a write,
// which does not block: clientCall.mu, serverRequest.mu and listenRequest.mu, each to keep the
// order of what it writes.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/quota"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Backends is the set of backends. Its methods may be called concurrently and do not block.
// Sessions are named by their ids.
type Backends interface {
	// Start starts the backends on its first call. It returns the view as it was at the call.
	Start() *catalog.View
	// View returns the current view of the catalog.
	View() *catalog.View
	// WhyUnavailable explains why an unknown tool name with a backend's prefix cannot be called:
	// the backend has never listed its tools or was removed. It returns a nil error otherwise.
	WhyUnavailable(name string) (backend string, err error)

	// OpenSession registers a session before anything is sent for it. Capabilities are the
	// client's, as JSON; per-session connections declare exactly these. Modern marks a session
	// that stands for stateless clients.
	OpenSession(session string, capabilities []byte, modern bool)
	// CloseSession removes a session and closes its per-session connections. It is called when
	// every call of the session has ended.
	CloseSession(session string)

	// Send sends a request to a backend on behalf of the session call.SessionID; see
	// [peer.Peer.Send]. A backend that is still starting gets the request later. The backend's
	// own timeout applies. The call ends with [peer.ErrForbidden] if the configuration does not
	// permit it at the time it would be sent.
	Send(backend string, m wire.Message, call *peer.Call)
	// SharesProcess reports whether the session uses a process of the backend that other sessions
	// also use.
	SharesProcess(backend, session string) bool
	// DeniedBy returns the backend whose filters deny an entry of this name; "" if there is none.
	DeniedBy(k catalog.Kind, name string) (backend string)
	// Permits reports whether the configuration permits sending the request to the backend now.
	// Send checks this itself; Permits is for calls that continue without being sent.
	Permits(backend string, m wire.Message, call *peer.Call) bool
	// Cancel cancels a call that was sent; see [peer.Call.Cancel].
	Cancel(backend string, call *peer.Call, params []byte)
	// Subscribe sends resources/subscribe, or resources/unsubscribe if on is false. The
	// subscription is restored when a connection is re-established. An unsubscribe is answered
	// with {} and not sent while others are subscribed over the same connection.
	Subscribe(backend, uri string, subscribe bool, m wire.Message, call *peer.Call)
	// SetLevel sets the session's log level at every backend that declares logging, now and on
	// each new connection. It calls done once, when all reachable backends have responded or
	// timed out.
	SetLevel(session, level string, done func())
	// Notify forwards a client's notification to a backend, or to all if backend is "". Only
	// per-session connections get it.
	Notify(session, backend string, m wire.Message)
}

// Options of a Gateway.
type Options struct {
	Backends    Backends
	Observers   []Observer // notified in this order of the begin and end of each call
	Info        mcp.Implementation
	MaxInFlight int // requests in flight per session
	// MaxStatelessClients bounds the stateless clients that are in use or were within the last
	// five minutes; idle ones are evicted first. A named principal gets at most half. 0 = 10000.
	MaxStatelessClients int
	// for calls in flight after the client has closed its side; 0 = 4 s. Only tests set it.
	Grace        time.Duration
	DrainTimeout time.Duration // for calls in flight when the gateway shuts down
	Log          *slog.Logger
	Mask         func(string) string // removes secrets from text for clients; may be nil
}

// A Gateway serves any number of clients. Create it with New.
type Gateway struct {
	Options

	info             []byte // Info, as JSON
	sealer           *sealer
	statelessClients statelessClients
	suspended        suspendedCalls
	usedTickets      usedTickets
	listeners        listeners

	statelessTasks statelessTasks
	resultBytes    quota.Bytes           // stored results of tasks and suspended calls
	taskListeners  quota.Counter[string] // tasks polled for listeners

	graceCtx context.Context // done when calls in flight get no more grace
	endGrace context.CancelFunc
	draining atomic.Int64 // sessions waiting for their calls in flight

	mu       sync.Mutex
	sessions map[string]*Session // by id
}

// New returns a Gateway. It starts nothing.
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
	g := &Gateway{Options: o, info: wire.Encode(o.Info), sealer: newSealer(),
		sessions: make(map[string]*Session)}
	g.graceCtx, g.endGrace = context.WithCancel(context.Background())
	return g
}

// EndGracePeriods ends the grace of all ending sessions, present and future: their calls in
// flight end at once with an unknown outcome. It returns false if no session was waiting for its
// calls.
func (g *Gateway) EndGracePeriods() bool {
	waits := g.draining.Load() > 0
	g.endGrace()
	return waits
}

// Serve runs a session over conn until the client disconnects or ctx is done. Then it accepts no
// more requests, waits a grace period for those in flight, cancels the rest and closes conn.
// There is no grace if conn failed with [transport.ErrClosed], because nothing can be delivered.
// The error is nil unless conn failed.
//
// The id must be unique; "" generates one. Principal is the authenticated identity of the client:
// what is issued to one principal, such as a ticket, is not valid for another. A session may last
// for a single request of a stateless client.
func (g *Gateway) Serve(ctx context.Context, id, principal string, conn transport.Conn) error {
	s := newSession(g, id, principal)
	s.peer = peer.New(conn, s, s.peerOptions())
	if !g.addSession(s) {
		conn.Close()
		return fmt.Errorf("session %s: the id is already in use", s.id)
	}
	return s.run(ctx)
}

// Open begins a session like Serve, but without a reading goroutine: the caller passes incoming
// messages to [Session.Receive]. The caller must call [Session.Closed] once writer is closed, by
// whichever side.
func (g *Gateway) Open(id, principal string, writer transport.Writer) *Session {
	s := newSession(g, id, principal)
	s.peer = peer.NewPush(writer, s, s.peerOptions())
	if !g.addSession(s) {
		g.Log.Error("duplicate session id", "session", s.id)
		writer.Close()
	}
	return s
}

// addSession registers a session and reports whether its id was free; removeSession undoes it.
func (g *Gateway) addSession(s *Session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.id] != nil {
		return false
	}
	g.sessions[s.id] = s
	return true
}

func (g *Gateway) removeSession(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.id] == s {
		delete(g.sessions, s.id)
	}
}

// coalesce is how long catalog changes are collected before clients are notified.
const coalesce = 50 * time.Millisecond

// Run notifies clients of catalog changes until ctx is done. Then it cancels what backends are
// still doing for stateless clients.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.closeStatelessClients()
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
		for _, s := range g.allSessions() {
			s.notifyCatalogChanged(v.Snapshot)
		}
		for _, l := range g.listeners.list() {
			l.catalogChanged(v.Snapshot)
		}
	}
}

// session returns the session with an id, nil if there is none.
func (g *Gateway) session(id string) *Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions[id]
}

func (g *Gateway) allSessions() []*Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.sessions))
}

// soleSession returns the only session that matches, nil if there are several or none.
func (g *Gateway) soleSession(match func(*Session) bool) *Session {
	var found *Session
	for _, s := range g.allSessions() {
		if !match(s) {
			continue
		}
		if found != nil {
			return nil
		}
		found = s
	}
	return found
}
