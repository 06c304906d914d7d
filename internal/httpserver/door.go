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
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
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
	// goes first is told at [session.evictLocked] and [Server.relieve].
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
	o      Options
	log    *slog.Logger
	rules  atomic.Pointer[rules]
	ctx    context.Context // of all sessions
	cancel context.CancelFunc

	kept    atomic.Int64 // bytes that all sessions keep for resumption
	outbox  outbox
	bodies  bodies
	serving sync.WaitGroup // goroutines in Serve, and sessions until End has returned; added to under mu, while not closing

	mu       sync.Mutex
	sessions map[string]*session // under their keys
	keepers  list.List           // sessions that keep anything, the one that began first in front
	visits   int
	left     sync.Cond           // on mu: a visit has left
	visiting map[*visit]struct{} // those, but for some that have ended

	exchanges int       // HTTP requests that are being answered; over HTTP/2 they may outlive their connection
	over      bool      // Run has ended
	idle      sync.Cond // on mu: there is no exchange

	principals principal // the highest there was

	sessionsOf, visitsOf map[principal]int

	closing bool
	crowded time.Time // when it was said last that there is no room

	refusals refusals
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
	d := &Server{o: o, log: o.Log, sessions: make(map[string]*session), sessionsOf: make(map[principal]int), visitsOf: make(map[principal]int)}
	d.refusals.log = o.Log
	d.left.L, d.idle.L = &d.mu, &d.mu
	d.outbox.most, d.bodies.most = o.BacklogLimit, max(o.BacklogLimit, 2*int64(o.MessageLimit))
	d.bodies.of, d.visiting = make(map[holder]int64), make(map[*visit]struct{})
	d.rules.Store(d.firstRules())
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// ServeHTTP implements http.Handler.
func (d *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.come() {
		return // the connection is gone, too
	}
	defer d.leave()
	// A body has to come in time even if it is not looked at: net/http waits for it
	// before it answers. Only who reads it to its end takes the deadline back.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	path := "/" + strings.Trim(r.URL.Path, "/") // some clients put one too many in front, or behind
	switch path {
	case "/healthz":
		d.health(w, r, nil)
		return
	case "/readyz":
		d.readiness(w, r)
		return
	}
	if !d.admit(w, r) {
		return
	}
	if isAuthorization(path) {
		d.noAuthorization(w, r)
		return
	}
	who, ok := d.authenticate(w, r)
	if !ok {
		return
	}
	switch path {
	case "/mcp":
		d.mcp(w, r, who)
	case "/sse":
		d.legacyStream(w, r, who)
	case "/message", "/messages":
		d.legacyPost(w, r, who)
	default:
		d.refuse(w, r, refuse(http.StatusNotFound, "Not found: MCP is spoken at /mcp"))
	}
}

// come begins an exchange, unless Run has ended.
func (d *Server) come() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.exchanges++
	}
	return !d.over
}

func (d *Server) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.exchanges--; d.exchanges == 0 {
		d.idle.Broadcast()
	}
}

func (d *Server) mcp(w http.ResponseWriter, r *http.Request, who principal) {
	if r.Method != http.MethodPost && asStateless(r, d.find(r.Header.Get(sessionHeader), who, false) != nil) {
		d.refuse(w, r, wrongVerb(http.MethodPost))
		return
	}
	switch r.Method {
	case http.MethodPost:
		d.post(w, r, who)
	case http.MethodGet:
		d.listen(w, r, who)
	case http.MethodDelete:
		d.delete(w, r, who)
	default:
		d.refuse(w, r, wrongVerb("GET, POST, DELETE, OPTIONS"))
	}
}

// readiness answers a probe that asks whether a client that comes now would be served. The names of
// backends that it waits for are for holders of a token.
func (d *Server) readiness(w http.ResponseWriter, r *http.Request) {
	names := r.URL.Query().Has("backends")
	if names {
		if len(d.rules.Load().tokens) == 0 {
			d.refuse(w, r, refuse(http.StatusForbidden, "Forbidden: the names of backends need a token: set auth.tokens"))
			return
		}
		if _, ok := d.authenticate(w, r); !ok {
			return
		}
	}
	d.mu.Lock()
	closing := d.closing
	d.mu.Unlock()
	var waiting []string
	if d.o.PendingBackends != nil {
		waiting = d.o.PendingBackends()
	}
	switch {
	case closing:
		d.health(w, r, errors.New("the gateway is ending"))
	case len(waiting) == 0:
		d.health(w, r, nil)
	case names:
		d.health(w, r, fmt.Errorf("waiting for %s", strings.Join(waiting, ", ")))
	case len(waiting) == 1:
		d.health(w, r, errors.New("waiting for 1 backend"))
	default:
		d.health(w, r, fmt.Errorf("waiting for %d backends", len(waiting)))
	}
}

// ServerHeader is what a Server calls itself in the header Server of /healthz and /readyz, so
// that one gateway can tell that it meets another.
const ServerHeader = "mcp-gateway"

// health answers a probe. It is asked by whoever can reach us, and says so
// little that everybody may know it.
func (d *Server) health(w http.ResponseWriter, r *http.Request, missing error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		d.refuse(w, r, wrongVerb("GET, HEAD"))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Server", ServerHeader)
	text := "ok\n"
	if missing != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = "not ready: " + missing.Error() + "\n"
	}
	_, _ = w.Write([]byte(text))
}

// open has a new session held, if there is room for it.
func (d *Server) open(s *session) *refusal {
	s.turn.Lock() // before it can be found
	defer s.turn.Unlock()
	if no := d.enter(s); no != nil {
		return no
	}
	s.holder = d.o.OpenSession(SessionInfo{ID: s.name, Principal: s.who.String()}, s)
	return nil
}

// enter makes a session one of ours. Forget is the end of that.
func (d *Server) enter(s *session) *refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closing:
		return d.ending()
	case !d.rules.Load().knows(s.who):
		return refuseToken()
	case len(d.sessions) >= d.o.MaxSessions:
		return d.crowdLocked("session", "Too many sessions are open", "max", d.o.MaxSessions).retry(30)
	case d.sessionsOf[s.who] >= d.share():
		return d.crowdLocked("session", "Too many sessions are open under this token", "max", d.share(), "principal", s.who.String()).retry(30)
	}
	d.sessions[s.key] = s
	d.sessionsOf[s.who]++
	d.serving.Add(1)
	return nil
}

func (d *Server) ending() *refusal {
	return refuse(http.StatusServiceUnavailable, "The gateway is ending").retry(2)
}

// find returns the session of that key, nil if there is none, or none that was
// opened by that principal in that way.
func (d *Server) find(key string, who principal, legacy bool) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[key]; s != nil && s.who == who && s.legacy == legacy {
		return s
	}
	return nil
}

// forget takes an ended session out of the tables, and tells its holder, which may take its time.
func (d *Server) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[s.key] == s {
		delete(d.sessions, s.key)
		if d.sessionsOf[s.who]--; d.sessionsOf[s.who] == 0 {
			delete(d.sessionsOf, s.who)
		}
		go func() {
			defer d.serving.Done()
			s.held().Closed(s.reason())
		}()
	}
	if s.keeper != nil {
		d.keepers.Remove(s.keeper)
		s.keeper = nil
	}
}

// account notes that s keeps delta bytes more than before, and takes from those
// who have kept longest what is too much.
func (d *Server) account(s *session, delta int) {
	total := d.kept.Add(int64(delta))
	if delta <= 0 {
		return
	}
	d.mu.Lock()
	if s.keeper == nil && d.sessions[s.key] == s {
		s.keeper = d.keepers.PushBack(s)
	}
	d.mu.Unlock()
	if total > d.maxKept() {
		d.relieve()
	}
}

// maxKept bounds what all sessions keep together.
func (d *Server) maxKept() int64 { return 64 * int64(d.o.RetainLimit) }

// relieve makes room: the session that began first to keep anything forgets all
// of it, delivered or not, and so on until the rest is within the bound.
func (d *Server) relieve() {
	for d.kept.Load() > d.maxKept() {
		d.mu.Lock()
		front := d.keepers.Front()
		if front == nil {
			d.mu.Unlock()
			return
		}
		s := d.keepers.Remove(front).(*session)
		s.keeper = nil
		d.mu.Unlock()
		s.forgetEvents()
	}
}

// newKey returns a session's key, <name>-<secret>. The name is for logs.
func newKey() (key, name string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:16]) + "-" + hex.EncodeToString(b[16:])
	name, _, _ = strings.Cut(key, "-")
	return key, name
}

// newName returns a name alone, for what nobody has to find.
func newName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
