package gateway

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A statelessClient stands for the clients that have no session and say the same of
// themselves: who they are, what they can do, which log messages they want. For a
// backend it is what a session is, for it is told these things, and asks. Guests of
// different principals are different ones.
type statelessClient struct {
	g         *Gateway
	id        string // as a session's
	principal string
	meta      protocol.ClientMeta
	name      string // name/version
	key       [sha256.Size]byte
	links     links // that the client was given

	// Guarded by guests.mu.
	refs  int         // sessions, calls, errands, tasks and subscriptions that have to do with it
	timer *time.Timer // ends it; nil while there are uses

	mu             sync.Mutex
	resumable      list.List // *errand, those that have not ended, the oldest first
	listenRequests map[*listenRequest]bool
}

const (
	// idleTTL is how long a guest stays when nobody uses it: what backends have opened
	// for it serves the next call.
	idleTTL = 5 * time.Minute
	// maxClientsPerConn bounds the guests that a connection keeps for as long as it lasts, those it
	// has brought last. Earlier ones go as any other does.
	maxClientsPerConn = 8
	// maxClientMeta bounds what a client says of itself in each request, in bytes: it is
	// kept, and told to backends.
	maxClientMeta = maxCapabilities
)

// statelessClients are those there are. The zero value is none.
type statelessClients struct {
	mu           sync.Mutex
	byKey        map[[sha256.Size]byte]*statelessClient
	byID         map[string]*statelessClient
	perPrincipal map[string]int // principal → how many
	closed       bool           // the gateway is ending
}

var errGatewayEnding = errors.New("the gateway is ending")

var errTooManyClients = errors.New("too many different clients at one time; wait until some have gone")

// statelessClient returns the guest that a request is from, whom it uses until it is left. If there are
// as many as there may be, one goes that nobody uses.
func (g *Gateway) acquireClient(principal string, meta protocol.ClientMeta) (*statelessClient, error) {
	key := fingerprint(principal, meta)
	table := &g.statelessClients
	var evicted *statelessClient
	defer func() { evicted.close() }() // when mu is free
	table.mu.Lock()
	defer table.mu.Unlock()
	if client := table.byKey[key]; client != nil {
		client.refs++
		if client.timer != nil {
			client.timer.Stop()
			client.timer = nil
		}
		return client, nil
	}
	principalToEvict, full := "", len(table.byKey) >= g.MaxStatelessClients
	if table.perPrincipal[principal] >= perPrincipalLimit(principal, g.MaxStatelessClients) {
		principalToEvict, full = principal, true
	}
	if full {
		if evicted = table.evictLocked(principalToEvict); evicted == nil {
			return nil, errTooManyClients
		}
	}
	if table.closed {
		return nil, errGatewayEnding
	}
	meta.Capabilities, meta.ClientInfo = slices.Clone(meta.Capabilities), slices.Clone(meta.ClientInfo)
	client := &statelessClient{g: g, id: newID(), principal: principal, meta: meta, name: clientInfoName(meta.ClientInfo), key: key, refs: 1}
	if table.byKey == nil {
		table.byKey, table.byID, table.perPrincipal = make(map[[sha256.Size]byte]*statelessClient), make(map[string]*statelessClient), make(map[string]int)
	}
	table.byKey[key], table.byID[client.id] = client, client
	table.perPrincipal[principal]++
	g.Backends.OpenSession(client.id, meta.Capabilities, true)
	if meta.LogLevel != "" {
		g.Backends.SetLevel(client.id, meta.LogLevel, func() {})
	}
	return client, nil
}

func fingerprint(principal string, meta protocol.ClientMeta) [sha256.Size]byte {
	return sha256.Sum256(wire.Encode([]string{
		principal, meta.Revision, string(meta.Capabilities), string(meta.ClientInfo), meta.LogLevel,
	}))
}

// evictLocked takes out a guest whom nobody uses, of that principal if it is not "", who
// is to be closed; nil if there is none.
func (table *statelessClients) evictLocked(principal string) *statelessClient {
	for _, client := range table.byKey {
		if client.refs == 0 && (principal == "" || client.principal == principal) {
			table.removeLocked(client)
			return client
		}
	}
	return nil
}

// removeLocked takes a guest out; close has to follow when mu is free.
func (table *statelessClients) removeLocked(client *statelessClient) {
	if client.timer != nil {
		client.timer.Stop()
	}
	delete(table.byKey, client.key)
	delete(table.byID, client.id)
	if table.perPrincipal[client.principal]--; table.perPrincipal[client.principal] == 0 {
		delete(table.perPrincipal, client.principal)
	}
}

// close ends what backends have for a guest who was taken out. A nil one has nothing.
func (sc *statelessClient) close() {
	if sc != nil {
		sc.g.Backends.CloseSession(sc.id)
	}
}

// get returns the guest of that id, nil if there is none.
func (table *statelessClients) get(id string) *statelessClient {
	table.mu.Lock()
	defer table.mu.Unlock()
	return table.byID[id]
}

// retain is one more use of a guest that is in use.
func (sc *statelessClient) retain() {
	sc.g.statelessClients.mu.Lock()
	defer sc.g.statelessClients.mu.Unlock()
	sc.refs++
}

// release ends a use. The guest stays for a while after the last.
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

// closeStatelessClients ends all guests, and what backends are doing for them, when the gateway
// ends.
func (g *Gateway) closeStatelessClients() {
	g.statelessTasks.removeAll()
	table := &g.statelessClients
	table.mu.Lock()
	clients := slices.Collect(maps.Values(table.byKey))
	table.mu.Unlock()
	for _, client := range clients {
		for _, rc := range client.resumableCalls() {
			rc.abort("the gateway is ending")
		}
	}
	table.mu.Lock()
	table.closed = true
	clients = slices.Collect(maps.Values(table.byKey))
	for _, client := range clients {
		table.removeLocked(client)
	}
	table.mu.Unlock()
	for _, client := range clients {
		client.close()
	}
}

// addCall and exit keep the list of errands.
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

// errCallEnded is why a question is declined that came on a call's stream.
var errCallEnded = wire.Errorf(wire.CodeInternalError, "The call to which this belongs is over, or its client cannot be asked anything")

// handleRequest hands on what a backend asks of the guest.
func (sc *statelessClient) handleRequest(backend string, r *peer.Request) {
	st := sc.namedTask(backend, r.Message, r.Origin())
	if st == nil {
		rc, certain := sc.originCall(backend, r.Origin())
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
		"Method not found: %s: the client can be asked while a call of its is in flight, and none is", truncate(r.Method())))
}

// addListener and unhear keep the list of subscriptions.
func (sc *statelessClient) addListener(l *listenRequest) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.listenRequests == nil {
		sc.listenRequests = make(map[*listenRequest]bool)
	}
	sc.listenRequests[l] = true
}

func (sc *statelessClient) removeListener(l *listenRequest) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	delete(sc.listenRequests, l)
}

func (sc *statelessClient) listeners() []*listenRequest {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return slices.Collect(maps.Keys(sc.listenRequests))
}

// subscribe has a backend tell of a resource, or stop to.
func (sc *statelessClient) subscribe(backend, uri string, on bool, to peer.ResponseChan) {
	method := protocol.MethodResourcesSubscribe
	if !on {
		method = protocol.MethodResourcesUnsubscribe
	}
	m := wire.NewRequest("0", method, wire.Encode(map[string]string{"uri": uri}))
	sc.g.Backends.Subscribe(backend, uri, on, m, &peer.Call{Handler: to, SessionID: sc.id})
}

// unsubscribeIfUnused has a backend stop to tell of a resource, if no other subscription is to it.
func (sc *statelessClient) unsubscribeIfUnused(backend, uri string) {
	for _, l := range sc.listeners() {
		l.mu.Lock()
		_, wanted := l.uris[uri]
		wanted = wanted || l.pendingURIs[uri]
		l.mu.Unlock()
		if wanted {
			return
		}
	}
	sc.subscribe(backend, uri, false, make(peer.ResponseChan, 1))
}

// handleNotification hands on what a backend says to the guest: changes, to its subscriptions; log
// messages, to the request on whose behalf they are, if it wants any of that level.
func (sc *statelessClient) handleNotification(backend string, m wire.Message, origin peer.Origin) {
	if m.Method() != protocol.NotificationMessage {
		for _, l := range sc.listeners() {
			l.handleNotification(backend, m)
		}
		return
	}
	if sc.meta.LogLevel == "" {
		return
	}
	if protocol.LogSeverity(stringAt(m, "params", "level")) < protocol.LogSeverity(sc.meta.LogLevel) {
		return
	}
	if sc.namedTask(backend, m, origin) != nil {
		return // no request waits for it
	}
	if rc, _ := sc.originCall(backend, origin); rc != nil {
		if c := rc.waitingCall(); c != nil && !c.s.isBacklogged(backend) {
			c.r.Notify(withBackendLogger(backend, protocol.StripMeta(m)))
		}
	}
}

// clientName returns the name/version of the client that has sent a request of the
// stateless era.
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
