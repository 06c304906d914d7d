// Package door is the HTTP side, through which clients come in: streamable HTTP of
// both eras at /mcp, and the HTTP+SSE of 2024-11-05 at /sse. Somebody else holds each session:
// what its client posts is given to that [SessionHandler], which writes to a [transport.Writer]. Of
// each request of the revisions that have no sessions a [transport.Conn] is made. Which era
// a message is of it says itself, so that both go on side by side.
//
//	ServeHTTP ─ admit (guard.go: Host, Origin, token)
//	  ├ POST /mcp    post.go
//	  │   ├ in a session    session.enter ─ session.deliver ─► SessionHandler.Receive
//	  │   │                   └ session.answer ◄─ stream ◄─ session.route ◄─ Writer.Write
//	  │   └ stateless.go    examine ─ receive ─► Conn.Read
//	  │                       └ visit.exchange ◄─ Conn.Write
//	  ├ GET /mcp     listen.go ─ session.pump (sse.go), one stream or the rest of one
//	  ├ DELETE /mcp  session.end
//	  └ /sse, /message  legacy.go
//
// It refuses to know MCP beyond what the transport needs: which request is the
// one that opens a session, which revision was agreed on or is named, which request
// the client takes back. A message is put on one stream and on no other.
package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Options of a Server. The zero value of all but Open and Serve works.
type Options struct {
	// OpenSession begins a session, over which out leads to the client, and returns who holds it. It must
	// not wait.
	OpenSession func(v SessionInfo, out transport.Writer) SessionHandler
	// ServeStateless holds a session that lives for one request, until it is over. It
	// is called on a goroutine of its own, which the Server waits for; ctx is done when the
	// Server closes, and Serve has to return then, after what grace it likes: what it
	// answers meanwhile still goes out.
	ServeStateless func(ctx context.Context, v SessionInfo, c transport.Conn)
	// ValidateHeaders is asked about each request of the stateless era whose _meta and
	// header MCP-Protocol-Version agree on a revision that is spoken. What it returns is
	// the answer; get returns the values of a header. It is called by many at once and
	// before anything is counted, and must not wait; nil = nothing is looked at.
	ValidateHeaders func(m wire.Message, get func(header string) []string) *wire.Error
	// OnRejected is called with a request that the Server itself answers with an error, and with the
	// name of its session, "" if it has none, before it does. What it is given may be no valid
	// message. It is called by many at once and must not wait; may be nil.
	OnRejected      func(session string, m wire.Message, err *wire.Error)
	PendingBackends func() []string // for /readyz: the backends that have neither answered nor failed; nil = none

	MessageLimit int // bytes of one message, and of what may wait for a client that does not read; 0 = 64 MiB
	// MaxSessions bounds those that are open at one time; beyond it initialize gets 503.
	// As many requests of the stateless era may be open beside them, subscriptions
	// among them; beyond that they get 503, too. Of either, one of several tokens gets half at most.
	// 0 = 10000.
	MaxSessions int
	IdleTimeout time.Duration // a session to which its client has no connection ends after it; 0 = 1 h
	// RetainLimit bounds what a session keeps so that a broken stream can be resumed, in
	// bytes; 0 = 1 MiB. All sessions together keep at most 64 times as much. What
	// goes first is told at [httpSession.evictLocked] and [Server.evictRetained].
	RetainLimit int
	// BacklogLimit bounds what waits for all clients that are connected together, in bytes;
	// beyond it the one with most is hung up on. What they have posted and is not answered
	// may be as much, and twice Limit at least; beyond that a POST gets 503. 0 = four times Limit.
	BacklogLimit int64

	Tokens   []string    // bearer tokens; none = no authentication
	Origins  []string    // origins of browser pages that may come, beside our own; with Tokens and Loopback, beside loopback's
	Hosts    []string    // names that we are reached by; with Loopback, beside loopback's
	Via      string      // how we name ourselves in the Via header of what we send: who comes with it is us; "" = not looked at
	Loopback bool        // we listen on loopback: the Host header is checked, too (DNS rebinding)
	TLS      *tls.Config // of Run; nil = plain
	Log      *slog.Logger
}

// A SessionHandler holds a session. All but Receive are called on goroutines of their own, which the Server
// waits for.
type SessionHandler interface {
	// Receive is called with what the client posts, one message after the other, in order of
	// arrival, on the goroutine of the POST: it must not wait. In a batch it is for the SessionHandler to
	// refuse what may not stand in one, see [revision.Alone].
	Receive(m wire.Message)
	// Shutdown is called when the Server closes, if the session is open then. It has to close
	// the session, after what grace it likes: what comes and is answered meanwhile still goes through.
	Shutdown()
	// Closed is called once the session is closed, by whomever, and nothing is received any more. Stop
	// may be called at the same time. Why is nil if the client or the SessionHandler has closed it.
	Closed(why error)
}

// A SessionInfo is what is known of a session's client.
type SessionInfo struct {
	// ID is the name of the session in logs: the first half of its Mcp-Session-Id,
	// and not a key to it. No two have the same.
	ID string
	// Principal tells those apart who have different tokens, without being the token;
	// "" where there are none.
	Principal string
	// Stateless says that this is one request of the stateless era: Read returns it,
	// and then only that the visit is over. It is when the response is written, and
	// when the client hangs up, which takes the request back. What is written is either
	// that response or a notification; requests are refused.
	Stateless bool
}

// A Server lets sessions in. Create it with New.
type Server struct {
	opts   Options
	log    *slog.Logger
	access atomic.Pointer[accessPolicy]
	ctx    context.Context // of all sessions
	cancel context.CancelFunc

	retained     atomic.Int64 // bytes that all sessions keep for resumption
	backlogQuota backlogQuota
	bodyQuota    bodyQuota
	running      sync.WaitGroup // goroutines in Serve, and sessions until End has returned; added to under mu, while not closing

	mu                 sync.Mutex
	sessions           map[string]*httpSession // under their keys
	retainers          list.List               // sessions that keep anything, the one that began first in front
	statelessCount     int
	statelessEnded     sync.Cond                       // on mu: a visit has left
	statelessExchanges map[*statelessExchange]struct{} // those, but for some that have ended

	activeRequests int       // HTTP requests that are being answered; over HTTP/2 they may outlive their connection
	runEnded       bool      // Run has ended
	noRequests     sync.Cond // on mu: there is no exchange

	lastPrincipal principalID // the highest there was

	sessionsBy, statelessBy map[principalID]int

	closing         bool
	lastOverloadLog time.Time // when it was said last that there is no room

	rejections rejectionLog
}

// New returns a Server. It starts nothing; the goroutines of sessions end when Run
// does.
func New(o Options) *Server {
	if o.MessageLimit <= 0 {
		o.MessageLimit = 64 << 20
	}
	if o.MaxSessions <= 0 {
		o.MaxSessions = 10000
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = time.Hour
	}
	if o.RetainLimit <= 0 {
		o.RetainLimit = 1 << 20
	}
	if o.BacklogLimit <= 0 {
		o.BacklogLimit = 4 * int64(o.MessageLimit)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	srv := &Server{opts: o, log: o.Log, sessions: make(map[string]*httpSession), sessionsBy: make(map[principalID]int), statelessBy: make(map[principalID]int)}
	srv.rejections.log = o.Log
	srv.statelessEnded.L, srv.noRequests.L = &srv.mu, &srv.mu
	srv.backlogQuota.limit, srv.bodyQuota.limit = o.BacklogLimit, max(o.BacklogLimit, 2*int64(o.MessageLimit))
	srv.bodyQuota.byKey, srv.statelessExchanges = make(map[quotaKey]int64), make(map[*statelessExchange]struct{})
	srv.access.Store(srv.initialAccess())
	srv.ctx, srv.cancel = context.WithCancel(context.Background())
	return srv
}
