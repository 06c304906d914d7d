package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A Session is the state of one client connection on stdio, or of one HTTP session.
type Session struct {
	clientConn
	peer     *peer.Peer
	opened   bool // registered with the backends; for the reading goroutine only
	openedAt time.Time

	tasks           sessionTasks   // tasks of the client at backends
	clientTasks     recentIDs      // ids of tasks at the client, created for backends
	urlElicitations recentIDs      // ids of URL elicitations sent to the client
	links           links          // resource URIs in the client's results
	delayedUpdates  delayedUpdates // resource updates held back while the client is backlogged

	lifecycle lifecycle
	lists     clientLists
	minLevel  atomic.Int32 // severity of the lowest log level to forward; 0 = all
	calls     callTracker
}

// newSession returns a session without a peer.
func newSession(g *Gateway, id, principal string) *Session {
	if id == "" {
		id = newID()
	}
	return &Session{clientConn: clientConn{g: g, id: id, principal: principal,
		work: newWorkGroup()}}
}

func (s *Session) peerOptions() peer.Options {
	return peer.Options{
		Log:           s.log,
		MaxInFlight:   s.g.MaxInFlight,
		AllowBatches:  func() bool { return s.lifecycle.handshake().Revision.Batches },
		RejectInBatch: protocol.RejectInBatch,
		PassPing:      protocol.IsModern,
		OnRejected:    s.recordRejected,
		CloseError:    s.closeError,
	}
}

// newID returns a random id.
func newID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// shutdownGrace bounds the grace period if the gateway shuts down while the session is already
// closing: a client that has closed stdin sends SIGTERM, and SIGKILL soon after that.
const shutdownGrace = 500 * time.Millisecond

// Receive handles a message of the client in a session begun by [Gateway.Open]. It must be called
// with one message at a time, in order of arrival. It does not block.
func (s *Session) Receive(m wire.Message) { s.peer.Receive(m) }

// Shutdown ends the session when the gateway shuts down: it waits a grace period for calls in
// flight, then closes the Conn. Receive may be called during the grace period.
func (s *Session) Shutdown() {
	s.stopped.Store(true)
	grace := s.g.DrainTimeout
	if s.lifecycle.current() == closing {
		grace = min(grace, shutdownGrace)
	}
	s.closeWithGrace(grace)
}

// Closed releases a session begun by [Gateway.Open]. It must be called after the Conn was closed
// and the last call of Receive has returned. The reason is the cause of the end; nil if the client
// or the session closed the Conn.
func (s *Session) Closed(reason error) {
	s.peer.Disconnected()
	s.closeWithGrace(0)
	s.cleanUp(reason)
}

// cleanUp waits for the session's goroutines and removes the session. The reason is the cause of
// the session's end; nil if the client ended the session.
func (s *Session) cleanUp(reason error) {
	s.work.close()
	s.tasks.endAll()
	s.clients.releaseAll()
	if s.opened {
		attrs := []any{"client", s.lifecycle.handshake().Name,
			"dur", time.Since(s.openedAt).Round(time.Millisecond)}
		if s.stopped.Load() {
			reason = errors.New("the gateway is ending")
		}
		if reason != nil {
			attrs = append(attrs, "err", reason)
		}
		s.log().Info("client disconnected", attrs...)
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

// closeWithGrace closes the session: it rejects further requests, ends the subscriptions, waits up
// to grace for requests in flight, then closes the connection. Of two concurrent calls, the one
// with the shorter grace closes the connection.
func (s *Session) closeWithGrace(grace time.Duration) {
	s.serveQueued(s.lifecycle.close())
	s.finishListens()
	s.g.grace.wait(s.work.ctx, grace, s.peer.DrainRequests)
	s.peer.Close()
	s.work.cancel()
}

// HandleRequest implements peer.Handler.
func (s *Session) HandleRequest(r *peer.Request) {
	if protocol.IsModern(r.Message) {
		s.serveModern(r, s.lifecycle.current() == closing)
		return
	}
	method := r.Method()
	switch s.lifecycle.admit(r, s.rejectQueued) {
	case serve:
		s.dispatch(r, method)
	case rejectUninitialized:
		s.fail(r, errNotInitialized)
	case rejectDuplicate:
		s.fail(r, wire.Errorf(wire.CodeInvalidRequest,
			"Invalid request: the session is initialized already"))
	case rejectUnknown:
		s.fail(r, methodNotFound(method))
	case rejectClosing:
		s.fail(r, errClosing)
	}
}

// dispatch routes a request by its method.
func (s *Session) dispatch(r *peer.Request, method string) {
	if params := r.Part(wire.PartParams); !wire.IsNull(params) && !wire.IsObject(params) {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: they must be an object"))
		return
	}
	if needs, ok := methodCapabilities[method]; ok && !s.lifecycle.handshake().serverDeclares(needs...) {
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
		s.startCall(r, toolsCallSpec)
	case protocol.MethodPromptsGet:
		s.startCall(r, promptsGetSpec)
	case protocol.MethodResourcesRead:
		s.startCall(r, resourcesReadSpec)
	case protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe:
		s.startCall(r, subscriptionSpec)
	case protocol.MethodCompletionComplete:
		if spec := completionSpec(r.Message); spec != nil {
			s.startCall(r, spec)
		} else {
			s.fail(r, errNoReference)
		}
	case protocol.MethodSetLogLevel:
		s.setLevel(r)
	case protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksCancel:
		s.startCall(r, taskSpec)
	case protocol.MethodTasksList:
		s.listTasks(r)
	default:
		s.fail(r, methodNotFound(method))
	}
}

// methodCapabilities contains the path of the server capability that a method requires. If the
// client was not offered the capability, the method is not found. Methods that are not in the map
// require no capability.
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

// HandleNotification implements peer.Handler. Unknown notifications are dropped without an error.
func (s *Session) HandleNotification(m wire.Message, _ peer.Origin) {
	switch m.Method() {
	case protocol.NotificationInitialized:
		s.serveQueued(s.lifecycle.initialized())
	case protocol.NotificationRootsListChanged:
		if s.isReady() && s.lifecycle.handshake().clientDeclares("roots") {
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

func (s *Session) isReady() bool { return s.lifecycle.current() == ready }

// serveQueued handles requests that have waited for notifications/initialized, when the handshake
// or the session has ended.
func (s *Session) serveQueued(q queuedRequests) {
	for _, r := range q.requests {
		s.HandleRequest(r)
	}
	for _, sr := range q.serverRequests {
		sr.send()
	}
}

// rejectQueued rejects the queued requests when initializedTimeout has expired.
func (s *Session) rejectQueued() {
	q := s.lifecycle.takeExpired()
	for _, r := range q.requests {
		s.fail(r, errNotInitialized)
	}
	for _, sr := range q.serverRequests {
		sr.send()
	}
}

// fail responds to a request with an error and audits the call as rejected, or as cancelled if the
// client cancelled the request first.
func (s *Session) fail(r *peer.Request, err *wire.Error) {
	s.recordCall(r.Message, rejection(r, err))
}

// recordRejected audits a call that was rejected before it was sent.
func (s *Session) recordRejected(m wire.Message, err *wire.Error) {
	s.recordCall(m, errorOutcome(Rejected, err))
}

func (s *Session) recordCall(m wire.Message, o Outcome) {
	client := s.lifecycle.handshake().Name
	if protocol.IsModern(m) {
		client = clientName(m)
	}
	s.g.recordCall(s.id, client, s.principal, m, o)
}
