package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A Session is one client's conversation.
type Session struct {
	g    *Gateway
	id   string
	peer *peer.Peer
	ctx  context.Context // done when the session is over
	end  context.CancelFunc
	work sync.WaitGroup // what waits on behalf of requests

	stopped atomic.Bool // it ends because the gateway does

	principal string    // who is at the far side, as far as somebody has checked
	guests    []*guest  // those that it keeps, the latest at the end; the reader's own
	opened    bool      // the backends know of it; the reader's own
	since     time.Time // when it was opened

	tasks    tasks  // of the client, at backends
	hosted   recent // tasks of backends, at the client
	elicited recent // what backends ask of the client by way of an URL
	links    links  // that the client was given
	missed   missed // of which it is told later

	mu      sync.Mutex
	state   state
	caller  Caller
	held    []*peer.Request // waiting for initialized
	hushed  []*question     // likewise, of backends
	timer   *time.Timer     // gives up on it
	seen    [catalog.NumKinds]seen
	level   int // from which on it wants log messages; 0 = all
	flights flights
	asking  questions
	early   []earlyStatus
	listens map[*listen]bool
	crowded time.Time // when it was logged last that notifications are left out
}

// newSession returns one that has no peer yet.
func newSession(g *Gateway, id, principal string) *Session {
	if id == "" {
		id = newID()
	}
	s := &Session{g: g, id: id, principal: principal}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// log returns what the session logs to. It is made when it is needed: most sessions log nothing after they have begun.
func (s *Session) log() *slog.Logger { return s.g.Log.With("session", s.id) }

func (s *Session) options() peer.Options {
	return peer.Options{
		Log:           s.log,
		MaxInFlight:   s.g.MaxInFlight,
		AllowBatches:  s.batches,
		RejectInBatch: protocol.RejectInBatch,
		PassPing:      protocol.IsModern,
		OnRejected:    s.refused,
		CloseError:    s.farewell,
	}
}

// newID returns what no other session goes by.
func newID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// hurried is the grace for calls in flight when the gateway is told to end while it ends already:
// clients that have closed stdin send SIGTERM, and soon after that SIGKILL.
const hurried = 500 * time.Millisecond

func (s *Session) run(ctx context.Context) error {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		s.Shutdown()
	})
	err := s.peer.Run(s.ctx)
	grace := s.g.Grace
	if errors.Is(err, transport.ErrClosed) {
		grace, err = 0, nil // there is nobody for whom an answer could be
	}
	s.finish(grace)
	if !stop() {
		<-over
		err = nil
	}
	s.leave(err)
	return err
}

// Receive sees to a message of the client's, in a session that [Gateway.Open] has begun. It is
// to be called with one message after the other, in order of arrival, and does not wait.
func (s *Session) Receive(m wire.Message) { s.peer.Receive(m) }

// Stop ends the session because the gateway ends: after a grace for what is in flight
// its Conn is closed. Receive may be called meanwhile.
func (s *Session) Shutdown() {
	s.stopped.Store(true)
	grace := s.g.DrainTimeout
	s.mu.Lock()
	if s.state == closing {
		grace = min(grace, hurried)
	}
	s.mu.Unlock()
	s.finish(grace)
}

// End is to be called once the Conn of a session that [Gateway.Open] has begun is closed, by
// whomever, and nothing more is received. Nothing of the session is left when it returns. Why is nil
// if the client or the session has closed the Conn.
func (s *Session) Closed(why error) {
	s.peer.Disconnected()
	s.finish(0) // there is nobody for whom an answer could be
	s.leave(why)
}

// leave waits for what was begun on behalf of the session, and forgets it. Why says why it has ended,
// nil if the client has ended it.
func (s *Session) leave(why error) {
	s.work.Wait()
	s.tasks.endAll()
	for _, guest := range s.guests {
		guest.leave()
	}
	if s.opened {
		s.mu.Lock()
		client := s.caller.Name
		s.mu.Unlock()
		facts := []any{"client", client, "dur", time.Since(s.since).Round(time.Millisecond)}
		if s.stopped.Load() {
			why = errors.New("the gateway is ending")
		}
		if why != nil {
			facts = append(facts, "err", why)
		}
		s.log().Info("client disconnected", facts...)
		s.g.Backends.CloseSession(s.id)
	}
	s.g.forget(s)
}

func (s *Session) farewell() *wire.Error {
	if s.stopped.Load() {
		return stopped
	}
	return ending
}

// finish ends the session: nothing new, a grace for what is in flight, the end.
// Of two calls the one whose grace is over first ends it.
func (s *Session) finish(grace time.Duration) {
	s.mu.Lock()
	s.state = closing
	s.mu.Unlock()
	s.release()
	s.endListens()
	ctx, cancel := context.WithTimeout(s.ctx, grace)
	defer cancel()
	defer context.AfterFunc(s.g.hurry, cancel)()
	s.g.draining.Add(1)
	s.peer.DrainRequests(ctx)
	s.g.draining.Add(-1)
	s.peer.Close()
	s.end()
}

// HandleRequest implements peer.Handler.
func (s *Session) HandleRequest(r *peer.Request) {
	if protocol.IsModern(r.Message) {
		s.askedStateless(r)
		return
	}
	method := r.Method()
	s.mu.Lock()
	verdict := admit(s.state, method)
	if verdict == hold {
		s.holdLocked(r)
	}
	s.mu.Unlock()
	switch verdict {
	case serve:
		s.serve(r, method)
	case refuse:
		s.fail(r, notInitialized)
	case again:
		s.fail(r, wire.Errorf(wire.CodeInvalidRequest, "Invalid request: the session is initialized already"))
	case unknown:
		s.fail(r, methodNotFound(method))
	case goodbye:
		s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run"))
	}
}

// serve is the table of contents of what the gateway offers.
func (s *Session) serve(r *peer.Request, method string) {
	if params := r.Part(wire.PartParams); !wire.IsNull(params) && !wire.IsObject(params) {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: they must be an object"))
		return
	}
	if needs, ok := needed[mcp.MCPMethod(method)]; ok && !s.offers(needs...) {
		s.fail(r, methodNotFound(method))
		return
	}
	if err := checkID(r.Message); err != nil {
		s.fail(r, err)
		return
	}
	switch mcp.MCPMethod(method) {
	case mcp.MethodInitialize:
		s.initialize(r)
	case mcp.MethodToolsList:
		s.list(r, catalog.Tools)
	case mcp.MethodPromptsList:
		s.list(r, catalog.Prompts)
	case mcp.MethodResourcesList:
		s.list(r, catalog.Resources)
	case mcp.MethodResourcesTemplatesList:
		s.list(r, catalog.Templates)
	case mcp.MethodToolsCall:
		s.byName(nil, r, toTool)
	case mcp.MethodPromptsGet:
		s.byName(nil, r, toPrompt)
	case mcp.MethodResourcesRead:
		s.byParam(nil, r, toResource, "uri")
	case mcp.MethodResourcesSubscribe:
		s.byParam(nil, r, toSubscribe, "uri")
	case mcp.MethodResourcesUnsubscribe:
		s.byParam(nil, r, toUnsubscribe, "uri")
	case mcp.MethodCompletionComplete:
		s.complete(nil, r)
	case mcp.MethodSetLogLevel:
		s.setLevel(r)
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel:
		s.byParam(nil, r, toTask, "taskId")
	case mcp.MethodTasksList:
		s.listTasks(r)
	default:
		s.fail(r, methodNotFound(method))
	}
}

// needed are the capabilities without which a method does not exist for a client:
// it may ask for nothing that it was not offered. Lists and what is in them are
// always there.
var needed = map[mcp.MCPMethod][]string{
	mcp.MethodResourcesSubscribe:   {"resources", "subscribe"},
	mcp.MethodResourcesUnsubscribe: {"resources", "subscribe"},
	mcp.MethodCompletionComplete:   {"completions"},
	mcp.MethodSetLogLevel:          {"logging"},
	mcp.MethodTasksGet:             {"tasks"},
	mcp.MethodTasksResult:          {"tasks"},
	mcp.MethodTasksList:            {"tasks", "list"},
	mcp.MethodTasksCancel:          {"tasks", "cancel"},
}

// HandleNotification implements peer.Handler. Notifications that mean nothing here are
// dropped: they are never answered, not with an error either.
func (s *Session) HandleNotification(m wire.Message, _ peer.Origin) {
	switch m.Method() {
	case string(mcp.MethodNotificationInitialized):
		s.mu.Lock()
		if s.state == greeted {
			s.state = ready
		}
		s.mu.Unlock()
		s.release()
	case mcp.MethodNotificationRootsListChanged:
		if s.isReady() && s.can("roots") {
			s.g.Backends.Notify(s.id, "", m)
		}
	case mcp.MethodNotificationTasksStatus:
		if s.isReady() {
			for _, backend := range s.hosted.of(stringAt(m, "params", "taskId")) {
				s.g.Backends.Notify(s.id, backend, m)
			}
		}
	}
}

func (s *Session) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == ready
}

// patience is how long a request may wait for initialized: over some transports
// the two can overtake each other.
const patience = 2 * time.Second

// holdLocked keeps a request until initialized has come. There are no more of
// them than requests may be in flight.
func (s *Session) holdLocked(r *peer.Request) {
	s.waitLocked()
	s.held = append(s.held, r)
}

// hushLocked is holdLocked for what a backend asks.
func (s *Session) hushLocked(q *question) {
	s.waitLocked()
	s.hushed = append(s.hushed, q)
}

func (s *Session) waitLocked() {
	if len(s.held)+len(s.hushed) == 0 {
		s.timer = time.AfterFunc(patience, s.tooLate)
	}
}

// release lets go of what was held, when the handshake or the session has ended: it
// is seen to.
func (s *Session) release() {
	s.mu.Lock()
	held, hushed := s.held, s.hushed
	s.held, s.hushed = nil, nil
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	for _, r := range held {
		s.HandleRequest(r)
	}
	for _, q := range hushed {
		q.send()
	}
}

// tooLate refuses what was held for too long.
func (s *Session) tooLate() {
	s.mu.Lock()
	var held []*peer.Request
	var hushed []*question
	if s.state == greeted {
		held, hushed = s.held, s.hushed
		s.held, s.hushed = nil, nil
	}
	s.mu.Unlock()
	for _, r := range held {
		s.fail(r, notInitialized)
	}
	for _, q := range hushed {
		q.send()
	}
}

// fail answers a request with an error of ours, and notes a call that was
// refused, or that was cancelled before it could be.
func (s *Session) fail(r *peer.Request, err *wire.Error) {
	if r.Fail(err) {
		s.refused(r.Message, err)
	} else {
		s.note(r.Message, Outcome{Kind: Cancelled})
	}
}

// refused notes a call that came to nothing before it began.
func (s *Session) refused(m wire.Message, err *wire.Error) {
	s.note(m, unanswered(Rejected, err))
}

// RecordRejected records a request that was answered with an error before a session received it. Session is
// the id of the session that it belongs to, "" if it belongs to none.
func (g *Gateway) RecordRejected(session string, m wire.Message, err *wire.Error) {
	g.mu.Lock()
	s := g.sessions[session]
	g.mu.Unlock()
	if s == nil {
		s = &Session{g: g, id: session}
	}
	s.refused(m, err)
}

func (s *Session) note(m wire.Message, o Outcome) {
	if !observed(m.Method()) {
		return
	}
	name := m.Name()
	if m.Method() == string(mcp.MethodResourcesRead) {
		name = stringAt(m, "params", "uri")
	}
	c := s.newCall(m, m.ID(), name)
	s.g.begin(&c)
	s.g.finish(&c, o)
}

func (s *Session) batches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller.Revision.Batches
}
