package httpserver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A statelessExchange is one request of the stateless era, and a session that lives for it. It
// is the [transport.Conn] that Serve holds: the request is read from it, and what is
// written to it goes to the client as the answer to its POST. It is over once the
// response is written, Close is called or the client is gone, which takes the request
// back: then Read says so, if only by [transport.ErrClosed].
type statelessExchange struct {
	server       *Server
	principal    principalID
	request      wire.Message
	isListen     bool            // it is a subscription
	jsonOnly     bool            // the client takes no events
	requestRead  bool            // it has been read; of the goroutine that reads
	disconnected <-chan struct{} // closed when the client hangs up
	closed       chan struct{}   // closed when it is over
	refs         atomic.Int32    // by how many it is still held: Serve, the HTTP exchange
	lease        *bodyLease      // in which it came
	logID        string          // in logs

	mu           sync.Mutex
	ended        bool
	hasResponse  bool
	status       int           // of the answer, if nothing was sent before it
	writer       *streamWriter // the exchange; nil when that has ended
	events       [][]byte      // that are still to be sent
	unsent       int           // bytes of those, and of the ones that are being sent
	accounted    int           // what the door knows of waiting
	backlog      backlog
	sending      int       // bytes of the latter
	lastProgress time.Time // when the client last took any, or there were none
}

func (srv *Server) newStatelessExchange(w http.ResponseWriter, r *http.Request, p *postedMessage, principal principalID) *statelessExchange {
	e := &statelessExchange{
		server: srv, logID: newLogID(), principal: principal, request: p.m, lease: p.lease, isListen: p.m.Method() == protocol.MethodSubscriptionsListen, jsonOnly: p.accept == acceptJSON,
		disconnected: r.Context().Done(), closed: make(chan struct{}), status: http.StatusOK, writer: newStreamWriter(w),
	}
	e.backlog.disconnect = e.disconnect
	e.refs.Store(2)
	return e
}

// maxListenBacklog is how many bytes may wait for a client that has subscribed and has taken
// nothing for as long as stalled: it is told of what has changed for as long as it likes, and who does
// not take that can look for itself when it comes back.
const (
	maxListenBacklog = 256 << 10
	stallTimeout     = 5 * time.Second
)

// startStateless has a visit served, if there is room for it.
func (srv *Server) startStateless(e *statelessExchange) *httpError {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.awaitSlotLocked(e.principal)
	const request = "request without a session"
	switch {
	case srv.closing:
		return srv.shuttingDown()
	case !srv.access.Load().includes(e.principal):
		return invalidToken()
	case srv.statelessCount >= srv.opts.MaxSessions:
		return srv.refuseOverloadedLocked(request, "Too many requests are open", "max", srv.opts.MaxSessions).retryAfter(1)
	case srv.statelessBy[e.principal] >= srv.perPrincipalLimit():
		return srv.refuseOverloadedLocked(request, "Too many requests are open under this token", "max", srv.perPrincipalLimit(), "principal", e.principal.String()).retryAfter(1)
	}
	srv.statelessCount++
	srv.statelessExchanges[e] = struct{}{}
	srv.statelessBy[e.principal]++
	e.lease.retain()
	srv.running.Go(func() {
		srv.opts.ServeStateless(srv.ctx, SessionInfo{ID: e.logID, Principal: e.principal.String(), Stateless: true}, e)
		_ = e.Close()
		e.release()
	})
	return nil
}

// slotWait is how long a request waits for a place when there is none: one is free only
// just after its client has the answer, and that may be the client that comes now.
const slotWait = 20 * time.Millisecond

func (srv *Server) awaitSlotLocked(principal principalID) {
	full := func() bool {
		return !srv.closing && (srv.statelessCount >= srv.opts.MaxSessions || srv.statelessBy[principal] >= srv.perPrincipalLimit())
	}
	if !full() {
		return
	}
	late := false
	timer := time.AfterFunc(slotWait, func() {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		late = true
		srv.statelessEnded.Broadcast()
	})
	defer timer.Stop()
	for full() && !late {
		srv.statelessEnded.Wait()
	}
}

// perPrincipalLimit bounds the sessions of one principal, and its visits, so that it leaves room for
// others if there are any.
func (srv *Server) perPrincipalLimit() int {
	if srv.access.Load().multiPrincipal() {
		return (srv.opts.MaxSessions + 1) / 2
	}
	return srv.opts.MaxSessions
}

// refuseOverloadedLocked refuses what there is no room for, and says so in the log, but not each time.
func (srv *Server) refuseOverloadedLocked(what, why string, facts ...any) *httpError {
	if now := time.Now(); now.Sub(srv.lastOverloadLog) > logThrottle {
		srv.lastOverloadLog = now
		srv.log.Warn("no room for a further "+what, facts...)
	}
	return newHTTPError(http.StatusServiceUnavailable, "%s", why)
}

// release lets go of a visit. When both who hold it have, there is room for another.
func (e *statelessExchange) release() {
	if e.refs.Add(-1) > 0 {
		return
	}
	e.lease.release()
	srv := e.server
	srv.mu.Lock()
	defer srv.mu.Unlock()
	defer srv.statelessEnded.Broadcast()
	srv.statelessCount--
	delete(srv.statelessExchanges, e)
	if srv.statelessBy[e.principal]--; srv.statelessBy[e.principal] == 0 {
		delete(srv.statelessBy, e.principal)
	}
}

// Read implements transport.Conn. It returns the request, and then nothing until the
// statelessExchange is over.
func (e *statelessExchange) Read() (wire.Message, wire.ID, error) {
	if !e.requestRead {
		e.requestRead = true
		select {
		case <-e.closed:
		case <-e.disconnected:
		default:
			return e.request, "", nil
		}
		e.server.reportRejected(e.request, e.logID, errClientGone)
	}
	select {
	case <-e.closed:
	case <-e.disconnected:
		_ = e.Close()
	}
	return wire.Message{}, "", transport.ErrClosed
}

// errNoServerRequests is what comes of a request to a client that answers none.
var errNoServerRequests = errors.New("a client of a revision without sessions cannot be asked")

// Write implements transport.Conn. Notifications go on the stream of the one request
// there is, whatever they are about, and its response ends it; the response to any
// other is dropped. It never waits for the client: what that leaves unread is bounded
// by Options.Limit, and for a subscription, which nothing but the client ends, by
// maxListenBacklog if it takes nothing for a while.
func (e *statelessExchange) Write(m wire.Message, _ wire.ID) error {
	e.mu.Lock()
	defer e.accountAndUnlock()
	switch {
	case e.ended:
		return transport.ErrClosed
	case m.Kind() == wire.Request || m.Kind() == wire.Batch:
		return errNoServerRequests
	case m.Kind() == wire.Response && m.ID() != e.request.ID(), m.Kind() == wire.Notification && e.jsonOnly:
		return nil
	case e.unsent >= e.server.opts.MessageLimit, e.unsent >= maxListenBacklog && e.isListen && time.Since(e.lastProgress) > stallTimeout:
		return transport.ErrFull
	}
	e.appendLocked(m.Raw())
	if m.Kind() == wire.Response {
		e.hasResponse, e.status = true, responseStatus(m)
		e.endLocked(transferTimeout(int64(e.unsent)))
	}
	e.writer.wake()
	return nil
}

// Backlogged reports whether an eighth of what may wait for the client does.
func (e *statelessExchange) Backlogged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended && e.unsent >= e.server.opts.MessageLimit/8
}

// Close implements transport.Conn. A client that is still there is told that there is
// no answer, for which Close does not wait; it has closeDrainTimeout to take that.
func (e *statelessExchange) Close() error {
	e.mu.Lock()
	defer e.accountAndUnlock()
	e.endLocked(closeDrainTimeout)
	return nil
}

// disconnect ends the visit, whose client does not read: size bytes wait for it, which is
// more than for any other. They are dropped at once.
func (e *statelessExchange) disconnect(size int64) {
	e.server.logDisconnect(e.logID, size)
	e.mu.Lock()
	defer e.accountAndUnlock()
	if e.writer == nil {
		return
	}
	e.endLocked(0)
	e.writer.setFinalDeadline(0)
	e.dropEventsLocked()
}

// dropEventsLocked forgets what is not sent.
func (e *statelessExchange) dropEventsLocked() { e.events, e.unsent, e.sending = nil, 0, 0 }

// accountAndUnlock releases mu.
func (e *statelessExchange) accountAndUnlock() {
	delta := e.unsent - e.accounted
	e.accounted = e.unsent
	e.mu.Unlock()
	e.server.backlogQuota.add(&e.backlog, delta)
}

var errUnanswered = wire.Errorf(wire.CodeInternalError, "The request has ended without an answer; outcome unknown: the call may have run")

// endLocked ends the visit; what waits for its client has to be taken within
// patience.
func (e *statelessExchange) endLocked(timeout time.Duration) {
	if e.ended {
		return
	}
	e.ended = true
	close(e.closed)
	if !e.hasResponse {
		e.appendLocked(wire.NewErrorResponse(e.request.ID(), errUnanswered).Raw())
	}
	e.writer.setFinalDeadline(timeout)
	e.writer.wake()
}

func (e *statelessExchange) appendLocked(text []byte) {
	if e.unsent == 0 {
		e.lastProgress = time.Now()
	}
	e.events = append(e.events, text)
	e.unsent += eventSize(text)
}

// respond sends what is written, until the visit is over or the client is gone. The
// headers are held back until it is known what comes first, for an answer alone can
// be an error that has a status of its own. A result alone is sent as JSON, unless the
// client would rather have events; all else, and what takes its time, is a stream. A client that takes
// JSON alone waits for its answer however long that takes. It reports whether the client was sent all
// of its answer; if not, the caller calls abort.
func (e *statelessExchange) respond(ctx context.Context, accepted accept) bool {
	sw := e.writer
	defer e.finish()
	for wait := true; wait; wait = e.jsonOnly && !e.hasEnded() {
		if !sw.waitForWake(ctx, keepAliveInterval) && !e.responded() {
			return false
		}
	}
	switch answer, status := e.soleResponse(); {
	case answer != nil && (status != http.StatusOK || accepted != acceptSSE):
		writeJSON(sw.w, status, answer)
		return true
	case e.jsonOnly:
		return false // its connection was cut
	}
	beginSSE(sw.w)
	return e.streamEvents(ctx, sw)
}

func (e *statelessExchange) responded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasResponse
}

func (e *statelessExchange) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// soleResponse returns the answer and its status, nil if that is not all there is.
func (e *statelessExchange) soleResponse() ([]byte, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended || len(e.events) != 1 { // none: it was hung up on
		return nil, 0
	}
	return e.events[0], e.status
}

// streamEvents sends events until there will be no more, or the client is gone. It reports false for the latter.
func (e *statelessExchange) streamEvents(ctx context.Context, sw *streamWriter) bool {
	timer := time.NewTimer(keepAliveInterval)
	defer timer.Stop()
	if sw.writeAndFlush(nil) != nil { // the headers go out
		return false
	}
	var batch [][]byte
	for more := true; ; timer.Reset(keepAliveInterval) {
		batch, more = e.nextEvents(batch)
		switch {
		case len(batch) > 0:
			if sw.writeEvents(batch, "", 0) != nil {
				return false
			}
			continue
		case !more:
			return true
		}
		select {
		case <-sw.wakeup:
		case <-timer.C:
			if sw.writeAndFlush([]byte(": keep-alive\n\n")) != nil {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// nextEvents notes that the batch before was sent, and returns what is to be sent now; more
// says whether there will be any later.
func (e *statelessExchange) nextEvents(before [][]byte) (batch [][]byte, more bool) {
	clear(before)
	e.mu.Lock()
	defer e.accountAndUnlock()
	e.unsent -= e.sending
	e.sending = 0
	e.lastProgress = time.Now()
	n := 0
	for ; n < len(e.events) && e.sending < maxEventBatch; n++ {
		e.sending += eventSize(e.events[n])
	}
	batch, e.events = e.events[:n:n], e.events[n:]
	return batch, !e.ended
}

// finish ends the exchange, and with it the visit.
func (e *statelessExchange) finish() {
	e.mu.Lock()
	e.endLocked(0)
	_ = http.NewResponseController(e.writer.w).SetWriteDeadline(time.Time{}) // which endLocked has set
	e.writer = nil
	e.dropEventsLocked()
	e.accountAndUnlock()
	e.release()
}
