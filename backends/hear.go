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

// maxQuestions bounds what a backend may ask of us at one time, over one line. ClientSide
// have bounds of their own; those that have no session come back for each question, and
// it is open until then.
const maxQuestions = 16_384

// A handler hears what a backend says unasked over one connection.
type handler struct {
	l      *line
	peer   *peer.Peer
	hangUp context.CancelCauseFunc // ends the conversation
	noise  atomic.Pointer[string]  // how the last output began that was no message
	warned atomic.Bool             // of params that were refused
}

// errEcho is why a conversation cannot begin with what asks what only a client does.
var errEcho = errors.New("it sends back what it is sent: it is no MCP server, or there is a terminal between (docker run -t, ssh -t)")

// HandleRequest implements peer.Handler.
func (h *handler) HandleRequest(r *peer.Request) {
	ready, server := h.l.talk()
	if m := r.Method(); ready == nil && (m == string(mcp.MethodInitialize) || m == discoverMethod) {
		h.hangUp(errEcho)
		return
	}
	if server.stateless { // where servers ask nothing
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
		return
	}
	m, err := protocol.NormalizeServerRequest(r.Message)
	if err == nil && r.Method() == string(mcp.MethodElicitationCreate) {
		err = protocol.CheckElicitationParams(m.Part(wire.PartParams))
	}
	if err != nil {
		h.warnOfParams(m, err)
		r.Fail(wire.Errorf(wire.CodeInvalidParams, "Invalid params: %v", err))
		return
	}
	r.Message = m
	h.l.b.set.clients().HandleRequest(h.owner(r.Message, r.Origin()), h.l.b.cfg.Name, r)
}

// namesCause reports whether a message names something, a task or an elicitation,
// by which the clients' side knows whose it is: it may come when the call that was
// its cause is over.
func namesCause(m wire.Message) bool {
	switch m.Method() {
	case string(mcp.MethodNotificationElicitationComplete), mcp.MethodNotificationTasksStatus,
		string(mcp.MethodTasksGet), string(mcp.MethodTasksResult), string(mcp.MethodTasksCancel):
		return true
	}
	task, _ := wire.Lookup(m.Part(wire.PartMeta), "io.modelcontextprotocol/related-task")
	return task != nil
}

// owner returns the session that something concerns which the backend says
// unasked, "" if that is not certain: the line's own; or that of the call on whose
// stream it came. On a shared line with one stream for everything it may also be that
// of all calls in flight, unless the message says itself whose it is. If there is only
// one client it is in any case one of its sessions, see soleSession. Where there are
// several streams (HTTP), what comes on no call's may be older than an answer that is
// here already, and is nobody's; so is what comes on that of a call that is over.
func (h *handler) owner(m wire.Message, on peer.Origin) string {
	switch {
	case h.l.own():
		return h.l.session
	case on.Call != nil && (on.Call.SessionID != "" || !h.l.b.set.SingleClient):
		return on.Call.SessionID
	case h.l.b.set.SingleClient:
		if owner, ok := h.peer.SoleSession(); ok && !namesCause(m) {
			return owner
		}
		if owner := h.peer.OldestSession(); owner != "" && !namesCause(m) {
			return owner // there is but one client, whatever it goes by
		}
		return h.l.b.set.soleSession()
	case on.CallEnded, h.l.b.hasStreams(), namesCause(m):
		return ""
	}
	if _, server := h.l.talk(); server.stateless { // there a log is of a call that asked for it, and has not been answered
		owner, _ := h.peer.SoleSessionWhere(func(owner string) bool {
			_, level := h.l.b.set.says(owner)
			return level != ""
		})
		return owner
	}
	owner, _ := h.peer.SoleSession()
	return owner
}

// HandleNotification implements peer.Handler.
func (h *handler) HandleNotification(m wire.Message, on peer.Origin) {
	method := m.Method()
	switch {
	case h.l.own() && h.l.b.read(method, func(k catalog.Kind) { h.l.news[k] = true }):
		// What is listed is what the shared connection is told; but it is this client's own
		// server that says so, and the client may know what for. It is told when the list has
		// been read, so that what it reads then is not what was there before.
		return
	case !h.l.own() && h.l.b.changed(method):
		return
	}
	if _, server := h.l.talk(); server.stateless {
		if method == acknowledged {
			h.l.acknowledged(m, on)
			return
		}
		m = protocol.StripMeta(m)
	}
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		h.l.updated(m, on)
		return
	case string(mcp.MethodNotificationMessage):
		if err := protocol.CheckLogParams(m.Part(wire.PartParams)); err != nil {
			h.warnOfParams(m, err)
			return
		}
		h.l.says.Debug("backend says", "params", cut(string(m.Part(wire.PartParams)), maxSaid))
	}
	h.l.b.set.clients().HandleNotification(h.owner(m, on), h.l.b.cfg.Name, m, on)
}

// changed has those lists read anew that a notification says have changed. One look
// serves any number of changes. It answers false if it is no such notification.
func (b *Backend) changed(notification string) bool {
	return b.read(notification, func(k catalog.Kind) { b.rumours[k] = true })
}

// read requests the lists that a notification names and reports whether it names any. Unlike
// changed it does not announce a list that turns out to be the same. It calls note for each
// kind of list, with b.mu held.
func (b *Backend) read(notification string, note func(catalog.Kind)) bool {
	return b.readKinds(func(k catalog.Kind) bool { return k.ChangedNotification() == notification }, note)
}

// changedAll requests every list again, each once.
func (b *Backend) changedAll() {
	b.readKinds(func(catalog.Kind) bool { return true }, func(k catalog.Kind) { b.rumours[k] = true })
}

// readKinds requests the lists of these kinds in one round and reports whether there are any.
// It calls both functions with b.mu held.
func (b *Backend) readKinds(wanted func(catalog.Kind) bool, note func(catalog.Kind)) bool {
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
		case b.relist <- struct{}{}:
		default:
		}
		b.shared.need() // which reads them
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
	for session, l := range b.own {
		for k, said := range l.news {
			if said {
				heard[change{session, catalog.Kind(k).ChangedNotification()}] = true
			}
		}
		clear(l.news[:])
	}
	return which, func() {
		for c := range heard {
			b.set.clients().HandleNotification(c.session, b.cfg.Name, wire.NewNotification(c.notification, nil), peer.Origin{})
		}
	}
}

// maxSaid bounds what is logged of a log message of the backend's own, in bytes.
const maxSaid = 8 << 10

// cut returns the first n bytes of a text, or somewhat less.
func cut(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// heard says, once, that there is something on the backend's stdout that should
// not be there.
func (h *handler) heard(n *transport.MalformedError) {
	text := cut(h.l.b.set.Mask(string(n.Text)), 200)
	say := h.l.says.Debug
	if h.noise.Swap(&text) == nil {
		say = h.l.says.Warn
	}
	say("skipped output that is no message", "text", text, "err", notJSON(n))
}

// notJSON returns why a piece of output is no message. Of a line of plain text the position at which
// it stops being JSON says nothing.
func notJSON(n *transport.MalformedError) error {
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

// warnOfParams logs that a message was not handed on because of its params: the first time as a
// warning.
func (h *handler) warnOfParams(m wire.Message, err error) {
	say := h.l.says.Debug
	if !h.warned.Swap(true) {
		say = h.l.says.Warn
	}
	say("refused a message whose params are not clear", "method", m.Method(), "err", err)
}

// blame adds to why the conversation failed what was heard in it that is no message:
// it may well say why.
func (h *handler) blame(err error) error {
	noise := h.noise.Load()
	exit, ended := errors.AsType[*child.ExitError](err)
	switch {
	case noise == nil:
		return err
	case ended && exit.Stderr == "" && !h.l.hasRun():
		return reworded{err, fmt.Sprintf("it ended (%s) and spoke no MCP; its output: %q", exit.Status, *noise)}
	}
	return fmt.Errorf("%w; it also wrote what is no MCP: %q", err, *noise)
}

// reworded is an error in other words.
type reworded struct {
	error
	text string
}

func (r reworded) Error() string { return r.text }
func (r reworded) Unwrap() error { return r.error }
