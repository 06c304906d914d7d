package httpserver

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// headerRevision returns the revision in the headers of a request; "" = none. If the headers have
// different values, it returns them joined, which matches no revision.
func headerRevision(r *http.Request) string {
	values := r.Header[protocol.HeaderProtocolVersion]
	if len(values) > 1 {
		values = slices.Compact(slices.Clone(values))
	}
	return strings.Join(values, ", ")
}

// headersAreModern reports whether the headers of a request contain a revision of the modern
// generation. A revision that the gateway does not know counts as modern only outside of a session.
func headersAreModern(r *http.Request, inSession bool) bool {
	revision := headerRevision(r)
	t, _ := protocol.FindRevision(revision)
	return t.Modern || !inSession && protocol.IsModernRevision(revision)
}

// A statelessTable contains the open requests of the modern generation.
type statelessTable struct {
	opts *Options
	// calling counts the calls of ServeRequest that have not returned. It is incremented only under
	// mu, before the shutdown.
	calling sync.WaitGroup
	// cancelling counts the goroutines that cancel the requests of closed exchanges. It is
	// incremented only during an HTTP exchange.
	cancelling sync.WaitGroup

	mu       sync.Mutex
	limit    openLimit
	released sync.Cond // on mu: an exchange was released
	// exchanges contains all open exchanges, and some that have just ended.
	exchanges map[*statelessExchange]struct{}
}

func newStatelessTable(srv *Server) *statelessTable {
	o := &srv.opts
	t := &statelessTable{
		opts: o, exchanges: make(map[*statelessExchange]struct{}),
		limit: openLimit{
			access: srv.access, max: o.MaxSessions, log: o.Log,
			logMessage: "too many requests without a session",
			message:    "Too many requests are open", retrySeconds: 1,
		},
	}
	t.released.L = &t.mu
	return t
}

// add adds an exchange, unless a limit is reached, the Server shuts down, or the token was removed.
// The caller must call calling.Done after the call of ServeRequest.
func (t *statelessTable) add(e *statelessExchange) *httpError {
	t.mu.Lock()
	defer t.mu.Unlock()
	waitFor(&t.released, slotWait,
		func() bool { return t.limit.closing || !t.limit.isFull(e.from) })
	if herr := t.limit.acquire(e.from); herr != nil {
		return herr
	}
	t.exchanges[e] = struct{}{}
	t.calling.Add(1)
	return nil
}

// slotWait is the maximum time that a request waits for a free slot. A slot becomes free shortly
// after the client has received its response; by then the client may already have sent its next
// request.
const slotWait = 20 * time.Millisecond

// remove removes an exchange and frees its slot.
func (t *statelessTable) remove(e *statelessExchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.exchanges, e)
	t.limit.counter.Release(e.from.Key())
	t.released.Broadcast()
}

// all returns a snapshot of the exchanges.
func (t *statelessTable) all() []*statelessExchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.exchanges))
}

// shutDown ends the open requests and waits for ShutDownRequests. The caller has called refuseNew.
func (t *statelessTable) shutDown() {
	t.calling.Wait()
	if t.opts.ShutDownRequests != nil {
		t.opts.ShutDownRequests()
	}
	for _, e := range t.all() {
		_ = e.Close()
	}
}

// refuseNew makes add fail from now on.
func (t *statelessTable) refuseNew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit.closing = true
}

// servePost serves a POST of the modern generation. The POST has no session, even if a header
// contains a session id. A notification is accepted and ignored: only a cancellation would be
// useful, but in this generation clients cancel by disconnecting.
func (t *statelessTable) servePost(x *httpExchange, p *postedMessage) {
	var herr *httpError
	switch p.m.Kind() {
	case wire.Request:
		herr = t.validate(x, p.m)
		if herr == nil && p.accept == acceptJSON &&
			p.m.Method() == protocol.MethodSubscriptionsListen {
			herr = newHTTPError(http.StatusNotAcceptable,
				"Not acceptable: a subscription is a stream: "+
					"the header Accept must name text/event-stream")
		}
	case wire.Notification:
		x.w.WriteHeader(http.StatusAccepted)
		return
	default:
		herr = newHTTPError(http.StatusBadRequest,
			"Invalid request: the body must be one request or one notification")
	}
	if herr == nil {
		e := newStatelessExchange(x, p)
		if herr = t.add(e); herr == nil {
			if !t.serve(x.r.Context(), e, p.accept) {
				abort()
			}
			return
		}
	}
	x.rejectPosted(p, "", herr)
}

// serve passes the request to ServeRequest and sends the response. It returns false if the client
// did not get the complete response; then the caller must call abort.
func (t *statelessTable) serve(
	ctx context.Context, e *statelessExchange, accepted acceptedFormat,
) bool {
	defer e.finish()
	t.start(ctx, e)
	defer e.endAtExpiry()()
	return e.respond(ctx, accepted)
}

// start calls ServeRequest, unless the client has disconnected or its token was removed.
func (t *statelessTable) start(ctx context.Context, e *statelessExchange) {
	defer t.calling.Done()
	if ctx.Err() == nil && e.currentState() == exchangeOpen {
		e.call()
	} else {
		e.server.rejections.report(e.request, e.info(), errClientGone)
	}
}

// validate checks that the headers and _meta of a request are consistent. Clients may rely
// on the order of the checks. Options.ValidateHeaders comes last.
func (t *statelessTable) validate(x *httpExchange, m wire.Message) *httpError {
	revision := headerRevision(x.r)
	client, rpcErr := protocol.ParseClientMeta(m)
	switch modern := protocol.IsModernRevision(revision); {
	// The request would be valid without the header.
	case modern && m.Method() == protocol.MethodInitialize && !protocol.IsModern(m):
		return headerMismatch()
	case modern && rpcErr != nil && rpcErr.Code == wire.CodeInvalidParams:
		return &httpError{status: http.StatusBadRequest, err: rpcErr}
	case revision != client.Revision:
		return headerMismatch()
	case rpcErr != nil:
		return &httpError{status: http.StatusBadRequest, err: rpcErr}
	}
	if t.opts.ValidateHeaders == nil {
		return nil
	}
	who := sessionInfo("", x.from.Principal, x.from.profile).Principal
	if rpcErr := t.opts.ValidateHeaders(who, m, x.r.Header.Values); rpcErr != nil {
		return &httpError{status: statusForCode(rpcErr.Code), err: rpcErr}
	}
	return nil
}

func headerMismatch() *httpError {
	return newHTTPError(http.StatusBadRequest,
		"Header mismatch: MCP-Protocol-Version must name the same revision as _meta").
		withCode(protocol.CodeHeaderMismatch)
}

// responseStatus returns the HTTP status of a response that is sent as JSON.
func responseStatus(response wire.Message) int {
	if failure := response.Part(wire.PartError); failure != nil {
		return statusForCode(wire.ReadError(failure).Code)
	}
	return http.StatusOK
}

func statusForCode(code int) int {
	switch code {
	case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability,
		protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	}
	return http.StatusOK
}
