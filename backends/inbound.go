package backends

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"mcpgateway/internal/transport/child"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// ClientSide is whoever knows the sessions. Its methods must not wait.
type ClientSide interface {
	// HandleRequest hands on what a backend asks of a client: of that whose session is
	// named. "" means that it is not certain which one is concerned.
	HandleRequest(session, backend string, r *peer.Request)
	// HandleNotification hands on what a backend says unasked, likewise. On is the stream on which it
	// came.
	HandleNotification(session, backend string, m wire.Message, on peer.Origin)
}

// maxServerRequests bounds what a backend may ask of us at one time, over one line. ClientSide
// have bounds of their own; those that have no session come back for each question, and
// it is open until then.
const maxServerRequests = 16_384

// A inboundHandler hears what a backend says unasked over one connection.
type inboundHandler struct {
	conn           *backendConn
	peer           *peer.Peer
	disconnect     context.CancelCauseFunc // ends the conversation
	lastMalformed  atomic.Pointer[string]  // how the last output began that was no message
	warnedOfParams atomic.Bool             // of params that were refused
}

// errEcho is why a conversation cannot begin with what asks what only a client does.
var errEcho = errors.New("it sends back what it is sent: it is no MCP server, or there is a terminal between (docker run -t, ssh -t)")

// HandleRequest implements peer.Handler.
func (h *inboundHandler) HandleRequest(r *peer.Request) {
	ready, server := h.conn.currentPeer()
	if m := r.Method(); ready == nil && (m == string(mcp.MethodInitialize) || m == methodDiscover) {
		h.disconnect(errEcho)
		return
	}
	if server.modern { // where servers ask nothing
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
		return
	}
	m, err := protocol.NormalizeServerRequest(r.Message)
	if err == nil && r.Method() == string(mcp.MethodElicitationCreate) {
		err = protocol.CheckElicitationParams(m.Part(wire.PartParams))
	}
	if err != nil {
		h.warnInvalidParams(m, err)
		r.Fail(wire.Errorf(wire.CodeInvalidParams, "Invalid params: %v", err))
		return
	}
	r.Message = m
	h.conn.b.set.clientSide().HandleRequest(h.originSession(r.Message, r.Origin()), h.conn.b.cfg.Name, r)
}

// namesOrigin reports whether a message names something, a task or an elicitation,
// by which the clients' side knows whose it is: it may come when the call that was
// its cause is over.
func namesOrigin(m wire.Message) bool {
	switch m.Method() {
	case string(mcp.MethodNotificationElicitationComplete), mcp.MethodNotificationTasksStatus,
		string(mcp.MethodTasksGet), string(mcp.MethodTasksResult), string(mcp.MethodTasksCancel):
		return true
	}
	task, _ := wire.Lookup(m.Part(wire.PartMeta), "io.modelcontextprotocol/related-task")
	return task != nil
}

// originSession returns the session that something concerns which the backend says
// unasked, "" if that is not certain: the line's own; or that of the call on whose
// stream it came. On a shared line with one stream for everything it may also be that
// of all calls in flight, unless the message says itself whose it is. If there is only
// one client it is in any case one of its sessions, see soleSession. Where there are
// several streams (HTTP), what comes on no call's may be older than an answer that is
// here already, and is nobody's; so is what comes on that of a call that is over.
func (h *inboundHandler) originSession(m wire.Message, on peer.Origin) string {
	switch {
	case h.conn.isPerSession():
		return h.conn.session
	case on.Call != nil && (on.Call.SessionID != "" || !h.conn.b.set.SingleClient):
		return on.Call.SessionID
	case h.conn.b.set.SingleClient:
		if owner, ok := h.peer.SoleSession(); ok && !namesOrigin(m) {
			return owner
		}
		if owner := h.peer.OldestSession(); owner != "" && !namesOrigin(m) {
			return owner // there is but one client, whatever it goes by
		}
		return h.conn.b.set.soleSession()
	case on.CallEnded, h.conn.b.hasManyStreams(), namesOrigin(m):
		return ""
	}
	if _, server := h.conn.currentPeer(); server.modern { // there a log is of a call that asked for it, and has not been answered
		owner, _ := h.peer.SoleSessionWhere(func(owner string) bool {
			_, level := h.conn.b.set.requestMeta(owner)
			return level != ""
		})
		return owner
	}
	owner, _ := h.peer.SoleSession()
	return owner
}

// HandleNotification implements peer.Handler.
func (h *inboundHandler) HandleNotification(m wire.Message, on peer.Origin) {
	method := m.Method()
	switch {
	case h.conn.isPerSession() && h.conn.b.requestRefresh(method, func(k catalog.Kind) { h.conn.notifyAfterRefresh[k] = true }):
		// What is listed is what the shared connection is told; but it is this client's own
		// server that says so, and the client may know what for. It is told when the list has
		// been read, so that what it reads then is not what was there before.
		return
	case !h.conn.isPerSession() && h.conn.b.listChanged(method):
		return
	}
	if _, server := h.conn.currentPeer(); server.modern {
		if method == methodAcknowledged {
			h.conn.listenAcknowledged(m, on)
			return
		}
		m = protocol.StripMeta(m)
	}
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		h.conn.forwardUpdate(m, on)
		return
	case string(mcp.MethodNotificationMessage):
		if err := protocol.CheckLogParams(m.Part(wire.PartParams)); err != nil {
			h.warnInvalidParams(m, err)
			return
		}
		h.conn.outputLog.Debug("backend says", "params", truncate(string(m.Part(wire.PartParams)), maxLoggedMessage))
	}
	h.conn.b.set.clientSide().HandleNotification(h.originSession(m, on), h.conn.b.cfg.Name, m, on)
}

// listChanged has those lists read anew that a notification says have changed. One look
// serves any number of changes. It answers false if it is no such notification.
func (b *Backend) listChanged(notification string) bool {
	return b.requestRefresh(notification, func(k catalog.Kind) { b.announced[k] = true })
}

// requestRefresh requests the lists that a notification names and reports whether it names any. Unlike
// changed it does not announce a list that turns out to be the same. It calls note for each
// kind of list, with b.mu held.
func (b *Backend) requestRefresh(notification string, note func(catalog.Kind)) bool {
	return b.refreshKinds(func(k catalog.Kind) bool { return k.ChangedNotification() == notification }, note)
}

// refreshAll requests every list again, each once.
func (b *Backend) refreshAll() {
	b.refreshKinds(func(catalog.Kind) bool { return true }, func(k catalog.Kind) { b.announced[k] = true })
}

// refreshKinds requests the lists of these kinds in one round and reports whether there are any.
// It calls both functions with b.mu held.
func (b *Backend) refreshKinds(wanted func(catalog.Kind) bool, note func(catalog.Kind)) bool {
	some := false
	b.mu.Lock()
	for k := range catalog.Kind(catalog.NumKinds) {
		if wanted(k) {
			b.stale[k], some = true, true
			note(k)
		}
	}
	b.mu.Unlock()
	if some {
		select {
		case b.refreshSignal <- struct{}{}:
		default:
		}
		b.shared.wake() // which reads them
	}
	return some
}

// takeStale returns the lists that have changed since it was called last. Tell is to be
// called when they have been read: it tells the clients whose own servers said so.
func (b *Backend) takeStale() (which [catalog.NumKinds]bool, tell func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	which, b.stale = b.stale, which
	type change struct{ session, notification string }
	heard := make(map[change]bool)
	for session, bc := range b.perSession {
		for k, said := range bc.notifyAfterRefresh {
			if said {
				heard[change{session, catalog.Kind(k).ChangedNotification()}] = true
			}
		}
		clear(bc.notifyAfterRefresh[:])
	}
	return which, func() {
		for c := range heard {
			b.set.clientSide().HandleNotification(c.session, b.cfg.Name, wire.NewNotification(c.notification, nil), peer.Origin{})
		}
	}
}

// maxLoggedMessage bounds what is logged of a log message of the backend's own, in bytes.
const maxLoggedMessage = 8 << 10

// truncate returns the first n bytes of a text, or somewhat less.
func truncate(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// onMalformed says, once, that there is something on the backend's stdout that should
// not be there.
func (h *inboundHandler) onMalformed(n *transport.MalformedError) {
	text := truncate(h.conn.b.set.Mask(string(n.Text)), 200)
	say := h.conn.outputLog.Debug
	if h.lastMalformed.Swap(&text) == nil {
		say = h.conn.outputLog.Warn
	}
	say("skipped output that is no message", "text", text, "err", malformedReason(n))
}

// malformedReason returns why a piece of output is no message. Of a line of plain text the position at which
// it stops being JSON says nothing.
func malformedReason(n *transport.MalformedError) error {
	reason, isParse := strings.CutPrefix(n.Err.Message, "Parse error: ")
	begins := strings.TrimLeft(string(n.Text), " \t\r\n")
	switch {
	case n.Err.Code != wire.CodeParseError, errors.Is(n.Err, wire.ErrUTF8):
		return n.Err
	case isParse && begins != "" && (begins[0] == '{' || begins[0] == '['):
		return fmt.Errorf("the line is not JSON: %s", reason)
	}
	return errors.New("the line is not JSON")
}

// warnInvalidParams logs that a message was not handed on because of its params: the first time as a
// warning.
func (h *inboundHandler) warnInvalidParams(m wire.Message, err error) {
	say := h.conn.outputLog.Debug
	if !h.warnedOfParams.Swap(true) {
		say = h.conn.outputLog.Warn
	}
	say("refused a message whose params are not clear", "method", m.Method(), "err", err)
}

// explain adds to why the conversation failed what was heard in it that is no message:
// it may well say why.
func (h *inboundHandler) explain(err error) error {
	noise := h.lastMalformed.Load()
	exit, ended := errors.AsType[*child.ExitError](err)
	switch {
	case noise == nil:
		return err
	case ended && exit.Stderr == "" && !h.conn.reachedReady():
		return rewordedError{err, fmt.Sprintf("it ended (%s) and spoke no MCP; its output: %q", exit.Status, *noise)}
	}
	return fmt.Errorf("%w; it also wrote what is no MCP: %q", err, *noise)
}

// rewordedError is an error in other words.
type rewordedError struct {
	error
	text string
}

func (r rewordedError) Error() string { return r.text }
func (r rewordedError) Unwrap() error { return r.error }
