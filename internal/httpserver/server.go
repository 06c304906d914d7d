// Package httpserver is the HTTP server transport for clients: streamable HTTP of both generations
// at /mcp, and HTTP+SSE (2024-11-05) at /sse. Each session has a [SessionHandler], provided by the
// gateway: the session passes the client's messages to the handler, and the handler writes to a
// [transport.Writer]. Each request of the modern generation is passed to Options.ServeRequest, with
// a [transport.Writer] of its own. The generation is determined for each message, so both
// generations work side by side.
//
//	ServeHTTP ─ accessControl.admit (Host, Origin), authenticate
//	  ├ POST /mcp    post.go; also /mcp/PROFILE and /sse/PROFILE
//	  │   ├ in a session    registerPost ─ deliver ─► SessionHandler.Receive
//	  │   │                   └ writeResponse ◄─ sseStream ◄─ streamSet ◄─ Writer.Write
//	  │   └ stateless.go    statelessTable.validate ─ serve ─► Options.ServeRequest
//	  │                       └ statelessExchange.respond ◄─ Writer.Write
//	  ├ GET /mcp     get.go ─ streamEvents: the standalone stream, or a resumed one
//	  ├ DELETE /mcp  get.go ─ closeWith
//	  └ /sse, /message  httpsse.go
//
// The package reads only the parts of MCP that the transport needs: the initialize request, the
// negotiated or named protocol revision, and cancellations. Each message is sent on at most one
// stream.
//
// Lock order: httpSession.deliverMu, then one of sessionTable.mu, statelessTable.mu, httpSession.mu
// and statelessExchange.mu, which are never held together. streamWriter.mu, connTracker.mu and the
// locks of the quotas come last. accessControl.updating and activeRequests.mu are never held
// together with another lock.
package httpserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Options configure a Server. Only OpenSession and ServeRequest are required.
type Options struct {
	// OpenSession begins a session and returns its handler. The handler writes messages for the
	// client to out. OpenSession must not block.
	OpenSession func(info SessionInfo, out transport.Writer) SessionHandler
	// ServeRequest serves a single request of the modern generation. It is called on the goroutine
	// of the HTTP request and must not block. Notifications and the response are written to out,
	// before ServeRequest returns or later, on any goroutine; other requests are rejected by out.
	// The Server calls cancel at most once, without locks held, if the exchange ends before the
	// response is written: the client has disconnected, out was closed, or the token of the client
	// was removed.
	ServeRequest func(info SessionInfo, m wire.Message, out transport.Writer) (cancel func())
	// ShutDownRequests is called when the Server shuts down; ServeRequest has returned and is not
	// called again. ShutDownRequests must end the open requests, possibly after a grace period;
	// messages written during that period are still sent. When it returns, the Server closes the
	// requests that are still open. nil = the Server closes them at once.
	ShutDownRequests func()
	// ValidateHeaders checks the headers of a modern request whose _meta and header
	// MCP-Protocol-Version contain the same supported revision. get returns the values of a header.
	// A non-nil error becomes the response. ValidateHeaders is called concurrently, before the
	// limit of open requests is applied, and must not block. If nil, no headers are checked.
	ValidateHeaders func(p *principal.Principal, m wire.Message,
		get func(header string) []string) *wire.Error
	// OnRejected is called before the Server itself responds with an error to a message that it has
	// read or tried to read, and when the client of a request disconnects before delivery. info is
	// the session, or the request without a session; its ID is "" if there is neither. Its
	// Principal may be nil if the ID is "" or the session is open. m may be invalid, or empty.
	// OnRejected is called concurrently and must not block; it may be nil.
	OnRejected func(info SessionInfo, m wire.Message, err *wire.Error)
	// PendingBackends returns the backends that are still starting, of those that a principal may
	// use, for /readyz; nil = none.
	PendingBackends func(p *principal.Principal) []string

	// LoginPages serves /login/ to browsers, without authentication. It must check that a request
	// does not come from a page of another site. nil = there are no such pages.
	LoginPages http.Handler

	// TraceContext is true if the headers traceparent and tracestate of a POST are put into _meta
	// of its request (see withTraceContext).
	TraceContext bool
	MessageLimit int // bytes of one message, and of the unsent messages of one client; 0 = 64 MiB
	// MaxSessions is the maximum number of open sessions; a further initialize gets status 503. It
	// is also the maximum number of open requests without a session, including subscriptions; a
	// further request gets status 503. If there are several tokens, one token can use at most half
	// of each number. 0 = 10000.
	MaxSessions int
	IdleTimeout time.Duration // time after which a session without HTTP exchanges ends; 0 = 1 h
	// RetainLimit is the maximum number of bytes that a session retains so that a broken stream can
	// be resumed; 0 = 1 MiB. All sessions together retain at most 64 times RetainLimit. For the
	// order of eviction see [streamSet.evict] and [retentionQuota].
	RetainLimit int
	// BacklogLimit is the maximum number of unsent bytes for all connected clients together. When
	// it is exceeded, the client with the largest backlog is disconnected. BacklogLimit, or twice
	// MessageLimit if that is larger, also limits the bytes of posted requests that have no
	// response yet. A POST that exceeds the share of its client (see bodyQuota) gets status 503. 0
	// = four times MessageLimit.
	BacklogLimit int64

	AccessRules // see [Server.UpdateAccess]
	// Via is the name of the gateway in the Via header of the requests that it sends. A request
	// with this name in Via comes from the gateway itself and is rejected. "" = not checked.
	Via      string
	Loopback bool        // the listener is on loopback: Host is checked as well (DNS rebinding)
	TLS      *tls.Config // nil = plain HTTP
	Log      *slog.Logger
}

// A SessionHandler receives the messages of one session. All methods except Receive are called on
// separate goroutines; the Server waits for these goroutines.
type SessionHandler interface {
	// Receive is called with each message of the client, in order of arrival, on the goroutine of
	// the POST; it must not block. The handler rejects the requests that are not allowed in a
	// batch, see [protocol.RejectInBatch].
	Receive(m wire.Message)
	// Shutdown is called when the Server shuts down while the session is open. It must close the
	// session, possibly after a grace period. During that period, messages are still received and
	// sent.
	Shutdown()
	// Closed is called once, when the session is closed and no longer receives messages. Shutdown
	// may run at the same time. reason is nil if the client or the SessionHandler closed the
	// session.
	Closed(reason error)
}

// SessionInfo identifies a session, or a request without a session, and its principal.
type SessionInfo struct {
	// ID identifies the session, or the request without a session, in logs. It is unique, and does
	// not give access to a session: the ID of a session is the first half of its Mcp-Session-Id.
	ID        string
	Principal *principal.Principal // nil without authentication
	HTTPSSE   bool                 // the transport is HTTP+SSE
}

// logger returns log with the attributes of the session.
func (i SessionInfo) logger(log *slog.Logger) *slog.Logger {
	return log.With("session", i.ID).With(i.Principal.LogAttrs()...)
}

// sessionInfo returns the SessionInfo of a client that uses the path of a profile; "" = the path
// has none.
func sessionInfo(id string, p *principal.Principal, profile string) SessionInfo {
	if profile != "" {
		p = p.WithProfile(profile)
	}
	return SessionInfo{ID: id, Principal: p}
}

// A Server is the HTTP server of the gateway. Create it with New.
type Server struct {
	opts   Options
	log    *slog.Logger
	access *accessControl
	// ctx is the context of the sweep of idle sessions; done when the Server shuts down.
	ctx    context.Context
	cancel context.CancelFunc

	active    activeRequests
	sessions  *sessionTable
	stateless *statelessTable

	posts        postReader
	backlogQuota backlogQuota
	retention    retentionQuota
	rejections   rejectionLog
}

// New returns a Server. It starts no goroutines. The goroutines of sessions have ended when Run
// returns.
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
	access := newAccessControl(&o)
	o.Tokens = nil // only their hashes are kept
	srv := &Server{
		opts: o, log: o.Log, access: access,
		posts: postReader{limit: o.MessageLimit, traceContext: o.TraceContext, quota: bodyQuota{
			limit: max(o.BacklogLimit, 2*int64(o.MessageLimit)), byKey: make(map[quotaKey]int64),
		}},
		backlogQuota: backlogQuota{limit: o.BacklogLimit, log: o.Log},
		retention:    retentionQuota{limit: 64 * int64(o.RetainLimit)},
		rejections:   rejectionLog{log: o.Log, onRejected: o.OnRejected},
		sessions: &sessionTable{
			openHandler: o.OpenSession, idleTimeout: o.IdleTimeout,
			sessions: make(map[string]*httpSession),
			limit: openLimit{
				access: access, max: o.MaxSessions, log: o.Log, logMessage: "too many sessions",
				message: "Too many sessions are open", retrySeconds: 30,
			},
		},
	}
	srv.ctx, srv.cancel = context.WithCancel(context.Background())
	srv.stateless = newStatelessTable(srv)
	srv.active.changed.L = &srv.active.mu
	return srv
}

// UpdateAccess replaces the tokens, the Verifier, origins, hosts and profiles. Sessions and
// requests of remaining tokens continue. UpdateAccess closes the sessions and requests of tokens
// that were removed, have expired, or have another name or profile; those with access tokens that
// another Verifier has accepted; those of profiles that were removed; and, if the first token or a
// Verifier is added, those without a token. It does not wait for the end of what it closes.
func (srv *Server) UpdateAccess(a AccessRules) {
	srv.access.update(a)
	srv.closeExcluded("closed sessions and requests of removed tokens")
}

// closeExcluded closes the sessions and requests that the policy no longer allows, and logs their
// number.
func (srv *Server) closeExcluded(message string) {
	// The tables check the policy under their locks: what they accept from now on is allowed.
	policy, closed := srv.access.policy.Load(), 0
	for _, s := range srv.sessions.all() {
		if !policy.includes(s.from) {
			_ = s.Close()
			closed++
		}
	}
	for _, e := range srv.stateless.all() {
		if !policy.includes(e.from) {
			_ = e.Close()
			closed++
		}
	}
	if closed > 0 {
		srv.log.Info(message, "records", closed)
	}
}
