package backends

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// A link is one network connection to the server of a backendConn, or one process. It is made
// before the handshake. When the handshake is over, it becomes the current link of its backendConn,
// until its connection ends.
type link struct {
	conn   *backendConn
	peer   *peer.Peer
	server atomic.Pointer[serverInfo] // zero before the end of the handshake; see refresher
	// client capabilities that were sent to a legacy server; read when the link is ready
	declared    []byte
	unreachable atomic.Bool  // the backendConn has IssueUnreachable; readable without its mutex
	refreshing  atomic.Int32 // number of list refreshes that run or are about to run

	// Guarded by conn.mu:
	ended            bool   // the connection has ended
	needsRediscovery bool   // the information in server may be outdated (modern servers)
	sentLevel        string // log level that was sent to the server
}

func newLink(bc *backendConn) *link {
	l := &link{conn: bc}
	l.server.Store(&serverInfo{})
	return l
}

// info returns the server; zero before the end of the handshake.
func (l *link) info() serverInfo { return *l.server.Load() }

// isModern reports whether the handshake has shown that the server is modern.
func (l *link) isModern() bool { return l.server.Load().modern }

// disconnected notes that the connection has ended, and the reason. From now on calls are queued
// for the next link. The method markFailed is called later, when nothing of the connection is left.
func (l *link) disconnected(why error) {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	l.disconnectedLocked(why)
}

func (l *link) disconnectedLocked(why error) {
	bc := l.conn
	l.ended = true
	if bc.link != nil && bc.link != l {
		return // the calls belong to the next link
	}
	bc.calls.disconnected()
	if bc.link == l {
		bc.link = nil
		bc.sup.Disconnected(time.Now(), why)
	}
}

func (l *link) hasEnded() bool {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	return l.ended
}

// beginRefresh notes that lists are being read, until the function done is called.
func (l *link) beginRefresh() (done func()) {
	l.refreshing.Add(1)
	return sync.OnceFunc(func() { l.refreshing.Add(-1) })
}

// markSuspect makes the next refresh discover the server again.
func (l *link) markSuspect() {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	l.needsRediscovery = true
}

// isUnreachable reports whether a request failed because the gateway, or a proxy, could not reach
// the server.
func isUnreachable(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	if !ok || isA[*httpclient.AuthorizationError](err) {
		return false
	}
	if status, ok := errors.AsType[*httpclient.StatusError](err); ok {
		return status.Code == http.StatusBadGateway ||
			status.Code == http.StatusServiceUnavailable || status.Code == http.StatusGatewayTimeout
	}
	return !lost.MayHaveRun && !errors.Is(err, transport.ErrClosed)
}

// noteReachability updates IssueUnreachable after a request to a modern server behind a URL. Such a
// server has no lasting connection whose end would show that the server is gone. noteReachability
// does nothing for a server on stdio. While the server is unreachable, the refresher tries to reach
// it; its lists are read again after that.
func (l *link) noteReachability(err error) {
	b := l.conn.b
	switch unreachable := isUnreachable(err); {
	case !b.hasManyStreams():
	case unreachable && !l.unreachable.Load():
		l.conn.setIssue(supervise.IssueUnreachable, err)
		b.lists.refreshTools()
	case !unreachable && (err == nil || isA[*httpclient.StatusError](err)) && l.unreachable.Load():
		l.conn.setIssue(supervise.IssueUnreachable, nil)
		b.lists.refreshAll()
	}
}

// capabilitiesDiffer reports whether the declared capabilities differ from those of a session, if
// the session is open.
func (l *link) capabilitiesDiffer(session string) bool {
	wanted, open := l.conn.b.set.sessions.capabilities(session)
	return open && !sameJSON(l.declared, wanted)
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil &&
		bytes.Equal(x.Bytes(), y.Bytes())
}

// withClientMeta returns a request in the form for a modern server, with the client metadata of a
// session; "" = no session: metadata without capabilities and log level. If tasks is set, the
// server may respond with a task, even if the session's client has not declared support for tasks.
// A request for a legacy server is returned unchanged.
func (l *link) withClientMeta(m wire.Message, session string, tasks bool) wire.Message {
	s, set := l.server.Load(), l.conn.b.set
	if !s.modern {
		return m // including inputResponses, if any: some servers accept them in both generations
	}
	meta := protocol.ClientMeta{Revision: s.ProtocolVersion, ClientInfo: set.clientInfo}
	meta.Capabilities, meta.LogLevel = set.sessions.requestMeta(session)
	if tasks {
		meta.Capabilities = protocol.AddTasksExtension(meta.Capabilities)
	}
	return meta.AddTo(m)
}

// withTrace begins the span of a request that is about to be sent, and returns the request with the
// trace context for the server.
func (l *link) withTrace(m wire.Message, r *contract.BackendRequest) wire.Message {
	cfg := &l.conn.b.cfg
	return m.SetMeta(r.Span.Begin(contract.TracedRequest{
		Backend: cfg.Name, Method: m.Method(), Entry: r.Entry,
		Revision: l.server.Load().ProtocolVersion, URL: cfg.URL,
	})...)
}

// restoreTimeout bounds the wait for responses to the gateway's requests about log levels and
// subscriptions, because some servers never respond to them.
const restoreTimeout = 5 * time.Second

// replayState restores the log level and the subscriptions after a reconnect. It returns the URIs
// whose updates may have been missed. For a modern server it does nothing and returns nil: such a
// server gets the level with each request, and the URIs through subscriptions/listen.
func (l *link) replayState(ctx context.Context) (missed []string) {
	bc, s := l.conn, l.server.Load()
	if s.modern {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	var requests []wire.Message
	level := bc.wantedLevel()
	bc.mu.Lock()
	if level != "" && s.has("logging") {
		requests = append(requests, setLevelRequest(level))
		l.sentLevel = level
	}
	missed, bc.subs.resubscribe = bc.subs.acceptedURIs(), nil
	bc.mu.Unlock()
	permitted := bc.b.filters.permittedURIs(missed)
	l.sendRestoring(ctx, append(requests, subscribeRequests(permitted)...))
	return missed
}

// sendRestoring sends requests of the gateway that restore the state of a server, such as
// subscriptions. It waits for the responses, and logs the first failure.
func (l *link) sendRestoring(ctx context.Context, requests []wire.Message) {
	warned := false
	for some := range slices.Chunk(requests, 64) { // some servers refuse large bursts
		for i, a := range l.peer.RoundTripAll(ctx, some...) {
			if failure := a.Part(wire.PartError); a.Err == nil && failure != nil {
				a.Err = wire.ReadError(failure)
			}
			if a.Err != nil && !warned {
				warned = true
				l.conn.log.Warn("restoring the log level or subscriptions failed",
					"method", some[i].Method(), "err", a.Err)
			}
		}
	}
}

// sendLevelLocked sends the log level that the backendConn wants, if the level has changed, and the
// server is legacy and declares logging. If g is not nil, g waits for the response. conn.mu is held
// throughout, so that the later one of two concurrent changes counts, and no call overtakes the
// level.
func (l *link) sendLevelLocked(g *responseGroup) {
	level, s := l.conn.wantedLevel(), l.server.Load()
	if s.modern || level == "" || level == l.sentLevel || !s.has("logging") {
		return
	}
	l.sentLevel = level
	c := &peer.Call{Handler: ignoreResponse{}, Timeout: restoreTimeout}
	if g != nil {
		g.add()
		c.Handler = g
	}
	if l.peer.TrySend(setLevelRequest(level), c) != nil {
		l.sentLevel = "" // not sent; the next call retries
		if g != nil {
			g.done()
		}
	}
}
