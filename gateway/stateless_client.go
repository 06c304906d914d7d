package gateway

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/quota"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A statelessClient represents all stateless requests with the same principal, the same profiles
// and the same client metadata: revision, client info, capabilities and log level. For backends it
// is a session.
type statelessClient struct {
	g         *Gateway
	id        string // session id at the backends
	principal *principal.Principal
	meta      protocol.ClientMeta
	name      string // name/version
	key       [sha256.Size]byte
	links     links // resource URIs in the client's results

	// semaphore of capacity 1 for sending subscribe and unsubscribe requests, see
	// unsubscribeIfUnused
	subscribing chan struct{}

	// Guarded by statelessClients.mu.
	refs  int         // sessions, calls, tasks and subscriptions that use the client
	timer *time.Timer // runs for idleTTL; nil while refs > 0
	seen  clientRequests

	listens     openSet[*listenRequest]
	completions openSet[*statelessCall] // completion/complete, sent and not ended

	mu        sync.Mutex
	resumable list.List // *resumableCall, not ended, the oldest first
}

const (
	// idleTTL is the time for which an unused client is kept, so that its next call can use the
	// connections that backends have opened for the client.
	idleTTL = 5 * time.Minute
	// maxClientsPerConn bounds the clients that a connection retains until it closes: the clients
	// that were used last. Other clients expire after idleTTL.
	maxClientsPerConn = 8
	// maxClientMeta bounds the client metadata of a request, in bytes. The gateway stores the
	// metadata and sends them to backends.
	maxClientMeta = maxCapabilities
)

// statelessClients is the table of stateless clients. The zero value is empty.
type statelessClients struct {
	mu      sync.Mutex
	byKey   map[[sha256.Size]byte]*statelessClient
	byID    map[string]*statelessClient
	counter quota.Counter[string] // by key of the principal
	closed  bool                  // the gateway is shutting down
}

var errGatewayEnding = errors.New("the gateway is ending")

var errTooManyClients = errors.New("too many different clients at once; " +
	"wait until some have disconnected")

// acquire returns the client to which a request belongs, with one more reference. At the
// limit it evicts an idle client (at the limit of a principal, an idle client of this principal) to
// create a new client, or returns errTooManyClients if there is none. After close it
// returns errGatewayEnding for a new client.
func (table *statelessClients) acquire(cc *clientConn,
	meta protocol.ClientMeta) (*statelessClient, error) {
	g, p, now := cc.g, cc.principal, time.Now()
	key := sha256.Sum256(wire.Encode([]string{p.Key(), p.ProfileKey(), meta.Revision,
		string(meta.Capabilities),
		string(meta.ClientInfo), meta.LogLevel}))
	var evicted *statelessClient
	defer func() { evicted.close() }() // after mu is released
	table.mu.Lock()
	defer table.mu.Unlock()
	if client := table.byKey[key]; client != nil {
		client.refs++
		client.seen.last = now
		if client.timer != nil {
			client.timer.Stop()
			client.timer = nil
		}
		return client, nil
	}
	full, ofAny := len(table.byKey) >= g.MaxStatelessClients, true
	if table.counter.Of(p.Key()) >= p.Share(g.MaxStatelessClients) {
		full, ofAny = true, false
	}
	if full {
		if evicted = table.evictLocked(func(client *statelessClient) bool {
			return ofAny || client.principal.Is(p)
		}); evicted == nil {
			return nil, errTooManyClients
		}
	}
	if table.closed {
		return nil, errGatewayEnding
	}
	meta.Capabilities = slices.Clone(meta.Capabilities)
	meta.ClientInfo = slices.Clone(meta.ClientInfo)
	client := &statelessClient{g: g, id: newID(), principal: p, meta: meta,
		name: clientInfoName(meta.ClientInfo), key: key,
		subscribing: make(chan struct{}, 1), refs: 1,
		seen: clientRequests{first: now, last: now, transport: cc.transport}}
	if table.byKey == nil {
		table.byKey = make(map[[sha256.Size]byte]*statelessClient)
		table.byID = make(map[string]*statelessClient)
	}
	table.byKey[key], table.byID[client.id] = client, client
	table.counter.Acquire(p.Key(), math.MaxInt, math.MaxInt)
	g.Backends.OpenSession(client.id, p, meta.Capabilities, true)
	if meta.LogLevel != "" {
		g.Backends.SetLevel(client.id, meta.LogLevel, func() {})
	}
	return client, nil
}

// evictLocked removes and returns an idle client for which mayEvict returns true. The caller must
// close the client. The result is nil if there is no such client.
func (table *statelessClients) evictLocked(
	mayEvict func(*statelessClient) bool,
) *statelessClient {
	for _, client := range table.byKey {
		if client.refs == 0 && mayEvict(client) {
			table.removeLocked(client)
			return client
		}
	}
	return nil
}

// removeLocked removes a client. The method close must be called after mu is released.
func (table *statelessClients) removeLocked(client *statelessClient) {
	if client.timer != nil {
		client.timer.Stop()
	}
	delete(table.byKey, client.key)
	delete(table.byID, client.id)
	table.counter.Release(client.principal.Key())
}

// close closes the per-session connections of a removed client. A nil client is ignored.
func (sc *statelessClient) close() {
	if sc != nil {
		sc.g.Backends.CloseSession(sc.id)
	}
}

// get returns the client with this id; nil if there is none.
func (table *statelessClients) get(id string) *statelessClient {
	table.mu.Lock()
	defer table.mu.Unlock()
	return table.byID[id]
}

func (table *statelessClients) all() []*statelessClient {
	table.mu.Lock()
	defer table.mu.Unlock()
	return slices.Collect(maps.Values(table.byKey))
}

// retain adds a reference to a client that already has a reference.
func (sc *statelessClient) retain() {
	sc.g.statelessClients.mu.Lock()
	defer sc.g.statelessClients.mu.Unlock()
	sc.refs++
}

// release removes a reference. After the last one the client is kept for idleTTL.
func (sc *statelessClient) release() {
	table := &sc.g.statelessClients
	table.mu.Lock()
	defer table.mu.Unlock()
	sc.refs--
	if sc.refs > 0 {
		return
	}
	sc.timer = time.AfterFunc(idleTTL, func() {
		table.mu.Lock()
		ended := sc.refs == 0 && table.byKey[sc.key] == sc
		if ended {
			table.removeLocked(sc)
		}
		table.mu.Unlock()
		if ended {
			sc.close()
		}
	})
}

// close ends all stateless clients with their calls. It is called when the gateway shuts down,
// after the removal of their tasks.
func (table *statelessClients) close() {
	for _, client := range table.all() {
		for _, rc := range client.resumableCalls() {
			rc.abort("the gateway is ending")
		}
	}
	table.mu.Lock()
	table.closed = true
	clients := slices.Collect(maps.Values(table.byKey))
	for _, client := range clients {
		table.removeLocked(client)
	}
	table.mu.Unlock()
	for _, client := range clients {
		client.close()
	}
}

// addCall and removeCall maintain the list of calls.
func (sc *statelessClient) addCall(rc *resumableCall) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	rc.elem = sc.resumable.PushBack(rc)
}

func (sc *statelessClient) removeCall(rc *resumableCall) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.resumable.Remove(rc.elem)
}

func (sc *statelessClient) resumableCalls() (all []*resumableCall) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for at := sc.resumable.Front(); at != nil; at = at.Next() {
		all = append(all, at.Value.(*resumableCall))
	}
	return all
}

// errCallEnded declines a backend's request that belongs to an ended call, or to a call whose
// client accepts no requests.
var errCallEnded = wire.Errorf(wire.CodeInternalError,
	"The call to which the request belongs has ended, or its client accepts no requests")

// handleRequest assigns a backend's request to a task or a call of the client, or rejects the
// request.
func (sc *statelessClient) handleRequest(backend string, from contract.Attribution,
	r *peer.Request) {
	st := sc.namedTask(backend, from, r.Message)
	if st == nil {
		rc, certain := sc.originCall(backend, from)
		switch {
		case rc != nil:
			rc.addInputRequest(r, certain)
			return
		case certain:
			decline(r, errCallEnded)
			return
		}
		st = sc.taskAwaitingResult(backend)
	}
	if st != nil {
		st.bridge.addInputRequest(r)
		return
	}
	r.Fail(wire.Errorf(wire.CodeMethodNotFound,
		"Method not found: %s: the client accepts requests only during its calls",
		truncate(r.Method())))
}

// subscribe sends resources/subscribe on behalf of the client. The URI must be in pendingURIs of a
// listenRequest of the client.
func (sc *statelessClient) subscribe(backend, uri string, to responseWaiter) {
	sc.subscribing <- struct{}{}
	defer func() { <-sc.subscribing }()
	sc.sendSubscription(protocol.MethodResourcesSubscribe, backend, uri, to)
}

// maySubscribe reports whether the configuration permits a subscription.
func (sc *statelessClient) maySubscribe(backend, uri string) bool {
	m := wire.NewRequest("0", protocol.MethodResourcesSubscribe,
		wire.Encode(map[string]string{"uri": uri}))
	return !errors.Is(sc.g.Backends.Permits(backend,
		contract.BackendRequest{Message: m, Session: sc.id}), contract.ErrForbidden)
}

// unsubscribeIfUnused unsubscribes from a resource unless another subscriptions/listen needs it.
// Checking and sending are one step, so that a subscribe request for a new subscriptions/listen
// either prevents the unsubscribe request or follows it.
func (sc *statelessClient) unsubscribeIfUnused(backend, uri string) {
	sc.subscribing <- struct{}{}
	defer func() { <-sc.subscribing }()
	for _, l := range sc.listens.list() {
		l.mu.Lock()
		_, wanted := l.uris[uri]
		wanted = wanted || l.pendingURIs[uri]
		l.mu.Unlock()
		if wanted {
			return
		}
	}
	sc.sendSubscription(protocol.MethodResourcesUnsubscribe, backend, uri, make(responseWaiter, 1))
}

// sendSubscription sends a subscribe or unsubscribe request. It does not block.
func (sc *statelessClient) sendSubscription(method, backend, uri string, to responseWaiter) {
	m := wire.NewRequest("0", method, wire.Encode(map[string]string{"uri": uri}))
	sc.g.Backends.NewCall(backend, contract.BackendRequest{Message: m, Session: sc.id}, to).Send()
}

// handleNotification forwards a backend's notification to the client. A log message is sent to the
// request to which it certainly belongs, if the request asks for messages of its level. Any other
// notification is sent to the client's subscriptions that select it.
func (sc *statelessClient) handleNotification(backend string, from contract.Attribution,
	m wire.Message) {
	if m.Method() != protocol.NotificationMessage {
		for _, l := range sc.listens.list() {
			l.handleNotification(backend, m)
		}
		return
	}
	if sc.namedTask(backend, from, m) != nil {
		return // no request is waiting
	}
	c := sc.logReceiver(backend, from)
	if c == nil {
		return
	}
	// a request that continues a call may have another level than the first request of the call
	level, lowest := stringAt(m, "params", "level"), c.client.meta.LogLevel
	if lowest == "" || protocol.LogSeverity(level) < protocol.LogSeverity(lowest) ||
		c.conn.isBacklogged(backend) {
		return
	}
	c.r.Notify(withBackendLogger(backend, protocol.StripMeta(m)))
}

// clientName returns the name/version of the sender of a modern request.
func clientName(m wire.Message) string {
	meta, _ := protocol.ParseClientMeta(m)
	return clientInfoName(meta.ClientInfo)
}

func clientInfoName(client []byte) string {
	name, _ := wire.Lookup(client, "name")
	version, _ := wire.Lookup(client, "version")
	if name == nil && version == nil {
		return ""
	}
	return truncate(wire.Unquote(name) + "/" + wire.Unquote(version))
}
