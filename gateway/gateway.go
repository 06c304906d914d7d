// Package gateway is the side that faces the clients: it holds a session with
// each of them, offers them one catalog and sends their calls to the backend they
// are for.
//
//	Serve ─ peer reads, or Open … Session.Receive ─ Session.Asked ─ admit (lifecycle.go, a pure table)
//	                       ├ askedStateless (stateless.go), what needs no session: it is of a
//	                       │    guest (guest.go), goes as an errand (errand.go, parked.go), and
//	                       │    may go on in a later request (retry.go, elsewhere.go); listen.go
//	                       └ serve (session.go, the switch over methods)
//	                            ├ initialize          handshake.go
//	                            ├ the four lists      list.go
//	                            ├ logging/setLevel    level.go
//	                            ├ tasks/list          task_list.go
//	                            └ what a backend serves, by its road (road.go):
//	                              tools, prompts, resources, completion, tasks
//	                                 call.go ─ Backends.Send … call.Done
//
// What has become a task is in a table of the session's (tasks.go), or of the principal's
// (task_jobs.go), and is asked about from there.
//
// The other direction is the same mirrored:
//
//	Gateway.Asked ─ question (ask.go) ─ peer.Send … question.Done
//	Gateway.Told ─ tell.go ─ the one session that it is meant for, or none
//
// Where client and backend are of different eras the gateway is the bridge: what a
// backend asks of a client without a session is parked (parked.go), and what one asks
// that asks nothing by itself is put to a client that has a session (rounds.go).
//
// It refuses to know what a backend is: it needs the few methods of [Backends].
// What a client reads of a failure of ours goes through one door, call.reason. And
// it refuses to guess: what cannot be said to be a session's reaches no session.
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

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Backends is what the gateway needs of whoever runs them. Its methods may be
// called concurrently and do not wait. A session is named by its id.
type Backends interface {
	// Start starts the backends, the first time it is called. It returns what was
	// known of the catalog when it was called.
	Start() *catalog.View
	// View returns what is known of the catalog now.
	View() *catalog.View
	// WhyUnavailable says why a name that is in no catalog may yet be a tool's: the backend
	// that its prefix names has never listed any, or is configured no more. err is nil if that is not so.
	WhyUnavailable(name string) (backend string, err error)

	// OpenSession makes a session known before anything is sent for it. Capabilities are
	// those that its client declared, as JSON: backends that speak to it alone are
	// told just these. Stateless says that it stands for clients that have no session.
	OpenSession(session string, capabilities []byte, modern bool)
	// CloseSession forgets a session, and ends the connections that were its own. It is
	// called when all that was sent for the session has come to its end.
	CloseSession(session string)

	// Send sends a request to a backend, on behalf of the session c.Owner; see
	// [peer.Peer.Send]. A backend that is still starting gets it later. The
	// backend's own time limit is applied. The call ends with [peer.ErrForbidden] if the
	// configuration does not permit it at the moment at which it would be sent.
	Send(backend string, m wire.Message, call *peer.Call)
	// SharesProcess reports whether the session, or client without one, uses a process of the backend
	// that others use, too.
	SharesProcess(backend, session string) bool
	// DeniedBy returns the backend whose filters deny what it lists under a name; "" if there is
	// none.
	DeniedBy(k catalog.Kind, name string) (backend string)
	// Permits reports whether the configuration permits that the request goes to the backend now.
	// Send checks it itself; Permits is for what goes on without being sent.
	Permits(backend string, m wire.Message, call *peer.Call) bool
	// Cancel takes back what was sent; see [peer.Call.Cancel].
	Cancel(backend string, call *peer.Call, params []byte)
	// Subscribe is Send for resources/subscribe, and for resources/unsubscribe if
	// on is false. What is subscribed to is kept up when a connection has to be
	// made anew; a backend that others are still subscribed to over the same
	// connection is not told to stop, and the call answered with {}.
	Subscribe(backend, uri string, on bool, m wire.Message, call *peer.Call)
	// SetLevel has the backends that log do so from a level on, as far as the
	// session is concerned, now and whenever a connection is made. It calls done
	// once, when those that can be reached have answered or had their time.
	SetLevel(session, level string, done func())
	// Notify passes a client's notification on to a backend, "" = to each, provided
	// that it has a connection for this session alone.
	Notify(session, backend string, m wire.Message)
}

// Options of a Gateway.
type Options struct {
	Backends    Backends
	Observers   []Observer // in this order; each sees every call begin and end
	Info        mcp.Implementation
	MaxInFlight int // requests of one session at a time
	// MaxStatelessClients bounds the clients without a session for whom backends keep something open:
	// those that are being served, and those that were in the last five minutes, which go
	// when there is no room. A principal has half of the places at most, if there are
	// principals. 0 = 10000.
	MaxStatelessClients int
	Grace               time.Duration // for calls in flight when a client has sent its last; 0 = 4 s
	// DrainTimeout is how long calls in flight may take when the gateway itself is told to end.
	DrainTimeout time.Duration
	Log          *slog.Logger
	// Mask takes secrets out of a text that a client will see; may be nil.
	Mask func(string) string
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
	resultBytes    byteBudget // how tasks ended
	taskListeners  counter    // tasks to which is listened

	graceCtx context.Context // done when no more time is given to calls in flight
	endGrace context.CancelFunc
	draining atomic.Int64 // sessions that wait for their calls in flight

	mu       sync.Mutex
	sessions map[string]*Session // by their ids
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
	g := &Gateway{Options: o, info: wire.Encode(o.Info), sealer: newSealer(), sessions: make(map[string]*Session)}
	g.graceCtx, g.endGrace = context.WithCancel(context.Background())
	return g
}

// EndGracePeriods ends the time that calls in flight have when a session ends: they end at once, with an
// unknown outcome. It reports false if no session was waiting for its calls.
func (g *Gateway) EndGracePeriods() bool {
	waits := g.draining.Load() > 0
	g.endGrace()
	return waits
}

// Serve holds a session over conn until the client ends it, or ctx is done. Either
// way no more requests are taken, those in flight get a grace, the rest is
// cancelled, and conn is closed. There is no grace if nothing can be delivered any
// more, which is what a [transport.ErrClosed] of conn's means. The error is nil
// unless conn failed.
//
// The session goes by id, which no other may have; "" stands for a new one. Principal
// says who is at the far side, as far as somebody has checked that: what is given to
// one of them, such as the state of a call, is good for no other. A session may last
// for one request, of a client that has none.
func (g *Gateway) Serve(ctx context.Context, id, principal string, conn transport.Conn) error {
	s := newSession(g, id, principal)
	s.peer = peer.New(conn, s, s.peerOptions())
	if !g.addSession(s) {
		conn.Close()
		return fmt.Errorf("session %s: the id is taken", s.id)
	}
	return s.run(ctx)
}

// Open begins a session as Serve does, but one whose client need not be read from: what that sends is given to
// [Session.Receive]. So nothing runs for a session in which nothing happens. The caller sees to it that it has an
// end: once out is closed, by whomever, [Session.End] is to be called.
func (g *Gateway) Open(id, principal string, writer transport.Writer) *Session {
	s := newSession(g, id, principal)
	s.peer = peer.NewPush(writer, s, s.peerOptions())
	if !g.addSession(s) {
		g.Log.Error("the id of a session is taken", "session", s.id)
		writer.Close()
	}
	return s
}

// addSession makes a session one of ours, if its id is not taken; forget is the end of that.
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

// coalesce is how long the gateway waits for further changes of the catalog
// before it tells its clients of one.
const coalesce = 50 * time.Millisecond

// Run tells the clients when the catalog has changed, until ctx is done. Then what
// backends are still doing for clients that have no session is taken back.
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

// session returns the session that goes by an id, nil if there is none.
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

// soleSession returns the session of which is is true, nil if there are several or none.
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
