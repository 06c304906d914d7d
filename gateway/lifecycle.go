package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A sessionState is the lifecycle state of a session (MCP lifecycle, revisions up to 2025-11-25):
//
//	uninitialized ─ initialize answered → awaitingInitialized
//	   ─ notifications/initialized → ready → closing
type sessionState uint8

const (
	uninitialized       sessionState = iota // only initialize and ping are allowed
	awaitingInitialized                     // initialize was answered
	ready
	closing // the client has disconnected, or the gateway is shutting down
)

// An admission is the decision about a request.
type admission uint8

const (
	serve               admission = iota
	queue                         // until notifications/initialized, for a limited time
	rejectUninitialized           // -32002: not initialized
	rejectDuplicate               // -32600: a second initialize
	rejectUnknown                 // -32601, in every state
	rejectClosing                 // -32603: the session is closing
)

// admit is the lifecycle table: a pure function of the state and the method. It gets no legacy
// pings, because package peer responds to these in every state.
func admit(s sessionState, method string) admission {
	switch {
	case method == protocol.MethodServerDiscover:
		// A client of a later revision sends server/discover first, to detect a legacy server. The
		// response must not depend on the handshake.
		return rejectUnknown
	case s == closing:
		return rejectClosing
	case method == protocol.MethodInitialize && s == uninitialized:
		return serve
	case method == protocol.MethodInitialize:
		return rejectDuplicate
	case s == uninitialized:
		return rejectUninitialized
	case s == awaitingInitialized:
		return queue
	}
	return serve
}

// A lifecycle is the state of a session and the result of its handshake. It queues requests that
// arrive before notifications/initialized. The zero value is uninitialized. Its methods may be
// called concurrently.
type lifecycle struct {
	mu         sync.Mutex
	state      sessionState
	negotiated negotiated
	queued     queuedRequests
	timer      *time.Timer // of initializedTimeout
}

// queuedRequests are requests that wait for notifications/initialized.
type queuedRequests struct {
	requests       []*peer.Request  // of the client; their number is bounded by MaxInFlight
	serverRequests []*serverRequest // of backends
}

// initializedTimeout is the time for which a request waits for notifications/initialized. On some
// transports the request may arrive before the notification.
const initializedTimeout = 2 * time.Second

func (l *lifecycle) current() sessionState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// handshake returns the result of the handshake.
func (l *lifecycle) handshake() negotiated {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.negotiated
}

// admit returns the decision about a client's request. If the decision is queue, the request is
// queued, and expired is called if initializedTimeout expires before the queue is taken.
func (l *lifecycle) admit(r *peer.Request, expired func()) admission {
	l.mu.Lock()
	defer l.mu.Unlock()
	decision := admit(l.state, r.Method())
	if decision == queue {
		l.startTimerLocked(expired)
		l.queued.requests = append(l.queued.requests, r)
	}
	return decision
}

// queueEarly queues a backend's request like admit. It returns false, and does not queue the
// request, if the handshake or the session has ended.
func (l *lifecycle) queueEarly(sr *serverRequest, expired func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != uninitialized && l.state != awaitingInitialized {
		return false
	}
	l.startTimerLocked(expired)
	l.queued.serverRequests = append(l.queued.serverRequests, sr)
	return true
}

func (l *lifecycle) startTimerLocked(expired func()) {
	if len(l.queued.requests)+len(l.queued.serverRequests) == 0 {
		l.timer = time.AfterFunc(initializedTimeout, expired)
	}
}

// negotiate stores the client's part of the handshake. A running backend may send the client a
// request from now on.
func (l *lifecycle) negotiate(n negotiated) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.negotiated = n
}

// answered notes that initialize was answered with these server capabilities.
func (l *lifecycle) answered(serverCaps []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.negotiated.serverCaps = serverCaps
	l.negotiated.offersTasks = catalog.Declares(serverCaps, "tasks")
	if l.state == uninitialized { // it may already be closing
		l.state = awaitingInitialized
	}
}

// initialized notes the arrival of notifications/initialized, and takes the queued requests.
func (l *lifecycle) initialized() queuedRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == awaitingInitialized {
		l.state = ready
	}
	return l.takeLocked()
}

// close notes the end of the session, and takes the queued requests.
func (l *lifecycle) close() queuedRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = closing
	return l.takeLocked()
}

// takeExpired takes the queued requests if notifications/initialized is still missing.
func (l *lifecycle) takeExpired() queuedRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != awaitingInitialized {
		return queuedRequests{}
	}
	return l.takeLocked()
}

func (l *lifecycle) takeLocked() queuedRequests {
	if l.timer != nil {
		l.timer.Stop()
	}
	q := l.queued
	l.queued = queuedRequests{}
	return q
}

// checkID rejects the id null for a request that reaches a backend or stays open: MCP forbids this
// id, and two such requests cannot be distinguished. Any other request with the id null gets a
// response with this id.
func checkID(m wire.Message) *wire.Error {
	if m.ID() != "null" {
		return nil
	}
	switch method := m.Method(); method {
	case protocol.MethodToolsCall, protocol.MethodPromptsGet, protocol.MethodResourcesRead,
		protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe,
		protocol.MethodCompletionComplete,
		protocol.MethodSetLogLevel, protocol.MethodTasksGet, protocol.MethodTasksResult,
		protocol.MethodTasksList,
		protocol.MethodTasksCancel, protocol.MethodTasksUpdate, protocol.MethodSubscriptionsListen:
		return wire.Errorf(wire.CodeInvalidRequest,
			"Invalid request: %s did not run because its id is null: "+
				"send it with a string or a number as its id", method)
	}
	return nil
}

// negotiated is the result of the handshake. The zero value allows no requests to the client.
type negotiated struct {
	Revision protocol.Features
	Name     string // name/version

	clientCaps  []byte // as declared by the client, JSON
	serverCaps  []byte // as sent to the client, JSON
	offersTasks bool   // serverCaps include tasks
}

// clientDeclares reports whether the client has declared a capability.
func (n negotiated) clientDeclares(path ...string) bool {
	return catalog.Declares(n.clientCaps, path...)
}

// serverDeclares reports whether the client was sent a server capability.
func (n negotiated) serverDeclares(path ...string) bool {
	return catalog.Declares(n.serverCaps, path...)
}

// maxCapabilities bounds the capabilities of a client, in bytes, because the gateway stores them
// and sends them to backends.
const maxCapabilities = 64 << 10

// initialize responds with the capabilities in the current view. It starts the backends and does
// not wait for them.
func (s *Session) initialize(r *peer.Request) {
	var request struct {
		ProtocolVersion *string `json:"protocolVersion"`
		// other members are ignored
		ClientInfo struct{ Name, Version string } `json:"clientInfo"`
	}
	params := r.Part(wire.PartParams)
	caps, ok := capabilities(params)
	err := json.Unmarshal(params, &request)
	if err != nil || request.ProtocolVersion == nil || !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: initialize needs the string protocolVersion; capabilities (at most %d "+
				"bytes) and clientInfo must be objects if they are present", maxCapabilities))
		return
	}
	requested := *request.ProtocolVersion
	caller := negotiated{
		Revision:   protocol.Negotiate(requested),
		Name:       truncate(request.ClientInfo.Name + "/" + request.ClientInfo.Version),
		clientCaps: caps,
	}
	s.lifecycle.negotiate(caller)
	attrs := []any{"client", caller.Name, "revision", caller.Revision.Date,
		"asked", truncate(requested)}
	if s.principal != "" {
		attrs = append(attrs, "principal", s.principal)
	}
	s.log().Info("client connected", attrs...)

	s.g.Backends.OpenSession(s.id, caps, false)
	s.opened, s.openedAt = true, time.Now()
	view := s.g.Backends.Start()
	offered := legacyCaps(view)
	r.Reply(wire.Encode(struct {
		ProtocolVersion string             `json:"protocolVersion"`
		Capabilities    json.RawMessage    `json:"capabilities"`
		ServerInfo      mcp.Implementation `json:"serverInfo"`
		Instructions    string             `json:"instructions,omitempty"`
	}{caller.Revision.Date, offered, s.g.Info, view.Instructions}))

	// The state changes after the response, so that no message of a backend precedes the response.
	// The client's next message is not read before this function returns.
	s.lifecycle.answered(offered)
}

// capabilities returns the client capabilities in params, {} if there are none. Null members are
// removed, because many servers reject them. The result ok is false if the capabilities are not an
// object or exceed maxCapabilities.
func capabilities(params []byte) (caps []byte, ok bool) {
	caps, _ = wire.Lookup(params, "capabilities")
	if wire.IsNull(caps) {
		return []byte("{}"), true
	}
	if !wire.IsObject(caps) || len(caps) > maxCapabilities {
		return nil, false
	}
	return bytes.Clone(wire.WithoutNulls(caps)), true
}

// setLevel stores the client's log level and sets it at the backends.
func (s *Session) setLevel(r *peer.Request) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), "level")
	level := wire.Unquote(value)
	n := protocol.LogSeverity(level)
	if n < 0 {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: logging/setLevel needs one of the levels %s",
			strings.Join(protocol.LogLevels, ", ")))
		return
	}
	s.minLevel.Store(int32(n))
	s.g.Backends.SetLevel(s.id, level, func() { r.Reply([]byte("{}")) })
}
