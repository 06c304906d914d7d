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

	principal string             // who is at the far side, as far as somebody has checked
	clients   []*statelessClient // those that it keeps, the latest at the end; the reader's own
	opened    bool               // the backends know of it; the reader's own
	openedAt  time.Time          // when it was opened

	tasks           sessionTasks   // of the client, at backends
	clientTasks     recentIDs      // tasks of backends, at the client
	urlElicitations recentIDs      // what backends ask of the client by way of an URL
	links           links          // that the client was given
	delayedUpdates  delayedUpdates // of which it is told later

	mu                   sync.Mutex
	state                state
	negotiated           negotiated
	queuedRequests       []*peer.Request  // waiting for initialized
	queuedServerRequests []*serverRequest // likewise, of backends
	initializedTimer     *time.Timer      // gives up on it
	lists                [catalog.NumKinds]listState
	minLevel             int // from which on it wants log messages; 0 = all
	inFlight             flights
	serverRequests       openServerRequests
	earlyStatuses        []earlyStatus
	listenRequests       map[*listenRequest]bool
	backlogLogged        time.Time // when it was logged last that notifications are left out
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

func (s *Session) peerOptions() peer.Options {
	return peer.Options{
		Log:           s.log,
		MaxInFlight:   s.g.MaxInFlight,
		AllowBatches:  s.allowsBatches,
		RejectInBatch: protocol.RejectInBatch,
		PassPing:      protocol.IsModern,
		OnRejected:    s.recordRejected,
		CloseError:    s.closeError,
	}
}

// newID returns what no other session goes by.
func newID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// shutdownGrace is the grace for calls in flight when the gateway is told to end while it ends already:
// clients that have closed stdin send SIGTERM, and soon after that SIGKILL.
const shutdownGrace = 500 * time.Millisecond

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
	s.shutDown(grace)
	if !stop() {
		<-over
		err = nil
	}
	s.cleanUp(err)
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
		grace = min(grace, shutdownGrace)
	}
	s.mu.Unlock()
	s.shutDown(grace)
}

// End is to be called once the Conn of a session that [Gateway.Open] has begun is closed, by
// whomever, and nothing more is received. Nothing of the session is left when it returns. Why is nil
// if the client or the session has closed the Conn.
func (s *Session) Closed(reason error) {
	s.peer.Disconnected()
	s.shutDown(0) // there is nobody for whom an answer could be
	s.cleanUp(reason)
}

// cleanUp waits for what was begun on behalf of the session, and forgets it. Why says why it has ended,
// nil if the client has ended it.
func (s *Session) cleanUp(reason error) {
	s.work.Wait()
	s.tasks.endAll()
	for _, client := range s.clients {
		client.release()
	}
	if s.opened {
		s.mu.Lock()
		client := s.negotiated.Name
		s.mu.Unlock()
		facts := []any{"client", client, "dur", time.Since(s.openedAt).Round(time.Millisecond)}
		if s.stopped.Load() {
			reason = errors.New("the gateway is ending")
		}
		if reason != nil {
			facts = append(facts, "err", reason)
		}
		s.log().Info("client disconnected", facts...)
		s.g.Backends.CloseSession(s.id)
	}
	s.g.removeSession(s)
}

func (s *Session) closeError() *wire.Error {
	if s.stopped.Load() {
		return errGatewayStopped
	}
	return errSessionEnding
}

// shutDown ends the session: nothing new, a grace for what is in flight, the end.
// Of two calls the one whose grace is over first ends it.
func (s *Session) shutDown(grace time.Duration) {
	s.mu.Lock()
	s.state = closing
	s.mu.Unlock()
	s.flushQueued()
	s.endListeners()
	ctx, cancel := context.WithTimeout(s.ctx, grace)
	defer cancel()
	defer context.AfterFunc(s.g.graceCtx, cancel)()
	s.g.draining.Add(1)
	s.peer.DrainRequests(ctx)
	s.g.draining.Add(-1)
	s.peer.Close()
	s.end()
}

// HandleRequest implements peer.Handler.
func (s *Session) HandleRequest(r *peer.Request) {
	if protocol.IsModern(r.Message) {
		s.handleStateless(r)
		return
	}
	method := r.Method()
	s.mu.Lock()
	decision := admit(s.state, method)
	if decision == queue {
		s.queueLocked(r)
	}
	s.mu.Unlock()
	switch decision {
	case serve:
		s.dispatch(r, method)
	case rejectUninitialized:
		s.fail(r, errNotInitialized)
	case rejectDuplicate:
		s.fail(r, wire.Errorf(wire.CodeInvalidRequest, "Invalid request: the session is initialized already"))
	case rejectUnknown:
		s.fail(r, methodNotFound(method))
	case rejectClosing:
		s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run"))
	}
}

// dispatch is the table of contents of what the gateway offers.
func (s *Session) dispatch(r *peer.Request, method string) {
	if params := r.Part(wire.PartParams); !wire.IsNull(params) && !wire.IsObject(params) {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: they must be an object"))
		return
	}
	if needs, ok := methodCapabilities[method]; ok && !s.serverDeclares(needs...) {
		s.fail(r, methodNotFound(method))
		return
	}
	if err := checkID(r.Message); err != nil {
		s.fail(r, err)
		return
	}
	switch method {
	case protocol.MethodInitialize:
		s.initialize(r)
	case protocol.MethodToolsList:
		s.serveList(r, catalog.Tools)
	case protocol.MethodPromptsList:
		s.serveList(r, catalog.Prompts)
	case protocol.MethodResourcesList:
		s.serveList(r, catalog.Resources)
	case protocol.MethodResourcesTemplatesList:
		s.serveList(r, catalog.Templates)
	case protocol.MethodToolsCall:
		s.callByName(nil, r, toolsCallSpec)
	case protocol.MethodPromptsGet:
		s.callByName(nil, r, promptsGetSpec)
	case protocol.MethodResourcesRead:
		s.callByParam(nil, r, resourcesReadSpec, "uri")
	case protocol.MethodResourcesSubscribe:
		s.callByParam(nil, r, subscribeSpec, "uri")
	case protocol.MethodResourcesUnsubscribe:
		s.callByParam(nil, r, unsubscribeSpec, "uri")
	case protocol.MethodCompletionComplete:
		s.completeArgument(nil, r)
	case protocol.MethodSetLogLevel:
		s.setLevel(r)
	case protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksCancel:
		s.callByParam(nil, r, sessionTaskSpec, "taskId")
	case protocol.MethodTasksList:
		s.listTasks(r)
	default:
		s.fail(r, methodNotFound(method))
	}
}

// methodCapabilities are the capabilities without which a method does not exist for a client:
// it may ask for nothing that it was not offered. Lists and what is in them are
// always there.
var methodCapabilities = map[string][]string{
	protocol.MethodResourcesSubscribe:   {"resources", "subscribe"},
	protocol.MethodResourcesUnsubscribe: {"resources", "subscribe"},
	protocol.MethodCompletionComplete:   {"completions"},
	protocol.MethodSetLogLevel:          {"logging"},
	protocol.MethodTasksGet:             {"tasks"},
	protocol.MethodTasksResult:          {"tasks"},
	protocol.MethodTasksList:            {"tasks", "list"},
	protocol.MethodTasksCancel:          {"tasks", "cancel"},
}

// HandleNotification implements peer.Handler. Notifications that mean nothing here are
// dropped: they are never answered, not with an error either.
func (s *Session) HandleNotification(m wire.Message, _ peer.Origin) {
	switch m.Method() {
	case protocol.NotificationInitialized:
		s.mu.Lock()
		if s.state == awaitingInitialized {
			s.state = ready
		}
		s.mu.Unlock()
		s.flushQueued()
	case protocol.NotificationRootsListChanged:
		if s.isReady() && s.clientDeclares("roots") {
			s.g.Backends.Notify(s.id, "", m)
		}
	case protocol.NotificationTasksStatus:
		if s.isReady() {
			for _, backend := range s.clientTasks.backends(stringAt(m, "params", "taskId")) {
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

// initializedTimeout is how long a request may wait for initialized: over some transports
// the two can overtake each other.
const initializedTimeout = 2 * time.Second

// queueLocked keeps a request until initialized has come. There are no more of
// them than requests may be in flight.
func (s *Session) queueLocked(r *peer.Request) {
	s.startInitializedTimerLocked()
	s.queuedRequests = append(s.queuedRequests, r)
}

// queueServerRequestLocked is holdLocked for what a backend asks.
func (s *Session) queueServerRequestLocked(sr *serverRequest) {
	s.startInitializedTimerLocked()
	s.queuedServerRequests = append(s.queuedServerRequests, sr)
}

func (s *Session) startInitializedTimerLocked() {
	if len(s.queuedRequests)+len(s.queuedServerRequests) == 0 {
		s.initializedTimer = time.AfterFunc(initializedTimeout, s.rejectQueued)
	}
}

// flushQueued lets go of what was held, when the handshake or the session has ended: it
// is seen to.
func (s *Session) flushQueued() {
	s.mu.Lock()
	requests, serverRequests := s.queuedRequests, s.queuedServerRequests
	s.queuedRequests, s.queuedServerRequests = nil, nil
	if s.initializedTimer != nil {
		s.initializedTimer.Stop()
	}
	s.mu.Unlock()
	for _, r := range requests {
		s.HandleRequest(r)
	}
	for _, sr := range serverRequests {
		sr.send()
	}
}

// rejectQueued refuses what was held for too long.
func (s *Session) rejectQueued() {
	s.mu.Lock()
	var requests []*peer.Request
	var serverRequests []*serverRequest
	if s.state == awaitingInitialized {
		requests, serverRequests = s.queuedRequests, s.queuedServerRequests
		s.queuedRequests, s.queuedServerRequests = nil, nil
	}
	s.mu.Unlock()
	for _, r := range requests {
		s.fail(r, errNotInitialized)
	}
	for _, sr := range serverRequests {
		sr.send()
	}
}

// fail answers a request with an error of ours, and notes a call that was
// refused, or that was cancelled before it could be.
func (s *Session) fail(r *peer.Request, err *wire.Error) {
	if r.Fail(err) {
		s.recordRejected(r.Message, err)
	} else {
		s.recordCall(r.Message, Outcome{Kind: Cancelled})
	}
}

// recordRejected notes a call that came to nothing before it began.
func (s *Session) recordRejected(m wire.Message, err *wire.Error) {
	s.recordCall(m, errorOutcome(Rejected, err))
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
	s.recordRejected(m, err)
}

func (s *Session) recordCall(m wire.Message, o Outcome) {
	if !observed(m.Method()) {
		return
	}
	name := m.Name()
	if m.Method() == protocol.MethodResourcesRead {
		name = stringAt(m, "params", "uri")
	}
	c := s.newCallInfo(m, m.ID(), name)
	s.g.observeBegin(&c)
	s.g.observeEnd(&c, o)
}

func (s *Session) allowsBatches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.negotiated.Revision.Batches
}
