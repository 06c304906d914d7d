package backends

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// stamped returns a request as a server reads it that is of the stateless era, on
// behalf of a session; "" = of nobody, who can do nothing and wants no log. With tasks it
// may be answered with a task, whatever the session's client has declared. One of the
// session era reads it as it is.
func (b *Backend) stamped(m wire.Message, s server, session string, tasks bool) wire.Message {
	if !s.stateless {
		return m // with answers that it was not asked for, if there are any: some servers read them in either era
	}
	stamp := protocol.ClientMeta{Revision: s.ProtocolVersion, ClientInfo: b.set.client}
	stamp.Capabilities, stamp.LogLevel = b.set.says(session)
	if tasks {
		stamp.Capabilities = protocol.AddTasksExtension(stamp.Capabilities)
	}
	return stamp.AddTo(m)
}

// offer sends a call over the conversation with s, in the words of its era. A call that the
// filters in force do not permit is refused with [peer.ErrForbidden]. A request that goes on with
// a call is refused with a *[wire.Error] for a server of the session era, where a call that asks
// something is open until it is answered, and for another program than the one that asked: the
// state and the answers of the user are not for it.
func (l *line) offer(p *peer.Peer, s server, w waiting) error {
	if !l.b.permits(w.m, w.c) {
		return peer.ErrForbidden
	}
	if w.c.IsContinuation && (!s.stateless || w.c.ServerKey != "" && w.c.ServerKey != l.b.program) {
		return l.b.cannotGoOn(w.m)
	}
	w.c.Modern, w.c.ServerKey, w.c.InterceptResponse = s.stateless, l.b.program, nil
	switch {
	case s.stateless:
		w.c.InterceptResponse = l.sparer(p, w)
	case l.b.cfg.URL != "" && !w.again:
		w.c.InterceptResponse = l.keeper(p, w)
	}
	return p.TrySend(l.b.stamped(w.m, s, w.c.SessionID, w.c.AllowTask), w.c)
}

// sparer returns what is shown the answer to a call before its caller is.
func (l *line) sparer(p *peer.Peer, w waiting) func(wire.Message, error) bool {
	return func(a wire.Message, err error) bool { return l.spared(p, w, a, err) }
}

// keeper returns the function that gets the error of a call before its caller does. It is a function of its own because a
// closure in offer would put every call on the heap.
func (l *line) keeper(p *peer.Peer, w waiting) func(wire.Message, error) bool {
	return func(_ wire.Message, err error) bool { return l.keepForNext(p, w, err) }
}

// keepForNext reports whether a call, sent over p, was refused only because the server does not
// know the session. It then waits for the next session, in which it is sent once more.
func (l *line) keepForNext(p *peer.Peer, w waiting, err error) bool {
	if err == nil || !httpclient.IsUnknownSession(err) {
		return false
	}
	l.log.Debug("backend does not know the session; the call is sent again in a new one", "method", w.m.Method(), "err", err)
	w.again = true
	l.lost(p, err)
	l.send(w)
	return true
}

func (b *Backend) cannotGoOn(m wire.Message) error {
	why := "inputResponses without requestState: the call that asked goes on with the requestState that it was answered with"
	if !wire.IsNull(m.Part(wire.PartRequestState)) {
		why = "requestState: it is of no use any more: begin the call anew"
	}
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: backend %s: %s", b.cfg.Name, why)
}

// spared reports whether what came of a call is the gateway's own affair: the server
// of the stateless era has refused how it was asked, and so not acted upon it. Then
// its tools are listed anew, for their schemas say which headers a call needs, or it
// is discovered anew (follow), and the call is sent once more. If that does not help
// the caller learns of it in words that are not for the backend's own clients alone.
//
// Meanwhile the call has no clock at the peer, and the list may have none either
// (start_timeout: 0). So it waits for its call_timeout at most, and if it has none for
// remedyWait; then it ends as one that was not run.
func (l *line) spared(p *peer.Peer, w waiting, a wire.Message, err error) bool {
	l.reached(err)
	e := wire.ReadError(a.Part(wire.PartError))
	doubt := e.Code == protocol.CodeUnsupportedVersion || foreign(err)
	switch {
	case !doubt && e.Code != protocol.CodeHeaderMismatch:
		return false
	case w.again && err != nil:
		return false
	case w.again:
		w.c.Handler.OnResponse(wire.NewErrorResponse(a.ID(), wire.Errorf(wire.CodeInternalError,
			"backend %s refuses how the gateway asks it: %s", l.b.cfg.Name, e.Message)), nil)
		return true
	}
	w.again = true
	l.mu.Lock()
	switch {
	case l.retired, w.c.IsCancelled():
		l.mu.Unlock()
		l.send(w) // which knows where to
		return true
	case l.gone == p:
		l.waiting = append(l.waiting, w)
	default:
		l.again = append(l.again, w)
		wait := cmp.Or(w.c.Timeout, remedyWait)
		time.AfterFunc(wait, func() { l.giveUp(w.c, wait) })
	}
	l.doubt = l.doubt || doubt
	l.mu.Unlock()
	l.b.refresh()
	return true
}

// remedyWait is how long a call that has no call_timeout waits for what may help it.
const remedyWait = 2 * time.Minute

// giveUp ends a call that was spared, unless it waits for that no more: it is sent once
// more only once.
func (l *line) giveUp(c *peer.Call, waited time.Duration) {
	l.mu.Lock()
	i := slices.IndexFunc(l.again, func(w waiting) bool { return w.c == c })
	if i >= 0 {
		l.again = slices.Delete(l.again, i, i+1)
	}
	l.mu.Unlock()
	if i >= 0 {
		c.Handler.OnResponse(wire.Message{}, notSent("it refuses how the gateway asks it, and did not list its tools anew within %v", waited))
	}
}

// foreign reports whether a request was refused as by an HTTP server that knows only the
// session era, before anything was done.
func foreign(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	status, _ := errors.AsType[*httpclient.StatusError](err)
	return ok && !lost.MayHaveRun && status != nil && (status.Code == 400 || status.Code == 404 || status.Code == 405)
}

// doubtful has the server discovered anew when its lists are read next.
func (l *line) doubtful() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt = true
}

// refresh has the tools listed anew.
func (b *Backend) refresh() { b.read(catalog.Tools.ChangedNotification(), func(catalog.Kind) {}) }

// pollWait is how long a server that could not be reached may take to say that it is there.
const pollWait = 10 * time.Second

// reassure discovers a server of the stateless era anew if there is doubt about it, or it
// could not be reached. It fails if the server is of that era no more.
func (l *line) reassure(ctx context.Context, p *peer.Peer, s *server) error {
	l.mu.Lock()
	doubt := l.doubt || l.sup.ills[illNowhere] != nil
	l.doubt = false
	l.mu.Unlock()
	if !doubt || !s.stateless {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pollWait, peer.ErrTimeout)
	defer cancel()
	found, err := l.discover(ctx, p)
	switch {
	case isA[classic](err):
		return err
	case err != nil:
		l.reached(err)
		l.log.Debug("backend could not be asked anew what it is", "err", err)
		return nil
	}
	*s = found
	l.mu.Lock()
	l.server = found
	l.mu.Unlock()
	l.ail(illNowhere, nil)
	return nil
}

// sendAgain sends what was spared.
func (l *line) sendAgain(p *peer.Peer) {
	l.mu.Lock()
	var refused []func()
	if l.peer == p {
		some := l.again
		l.again = nil
		refused = l.offerLocked(p, some)
	}
	l.mu.Unlock()
	for _, tell := range refused {
		tell()
	}
}

// errHandedOver is why a session's own line ends that has found the backend to be of
// the stateless era.
var errHandedOver = errors.New("it needs no connection for each session")

// handOver ends a session's own line: what waits for it goes over the one that all
// share, as does what is sent from now on.
func (l *line) handOver() {
	l.b.mu.Lock()
	if l.b.own[l.session] == l {
		delete(l.b.own, l.session)
	}
	l.b.mu.Unlock()
	l.mu.Lock()
	l.handed = true
	waiting, uris := l.waiting, l.subs.agreedTo()
	l.waiting, l.subs = nil, subscriptions{}
	l.mu.Unlock()
	l.b.shared.inherit(l.session, uris)
	for _, w := range waiting {
		l.b.shared.send(w)
	}
}

// inherit takes over a session's subscriptions from another line, unless it is over. A line
// of the session era must not have begun to start: it tells the backend then.
func (l *line) inherit(session string, uris []string) {
	l.mu.Lock()
	if l.retired {
		l.mu.Unlock()
		l.b.passOnSubscriptions(session, uris)
		return
	}
	defer l.mu.Unlock()
	for _, uri := range uris {
		l.subs.add(uri, session)
		l.subs.agreed(uri, session)
	}
	if !l.b.set.isOpen(session) {
		l.subs.removeAll(session, false)
	}
	if !l.own() && !l.subs.empty() {
		l.wakeLocked() // it may be stopped until it is needed
	}
	l.pokeListening()
}
