package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A listenRequest is a request subscriptions/listen: as long as it is open the client hears of
// what it has asked for, and of nothing else. For backends it is its guest who is
// subscribed: where that has a connection of its own, what its calls change is said
// there.
type listenRequest struct {
	g      *Gateway
	s      *Session
	client *statelessClient
	r      *peer.Request

	delayedUpdates delayedUpdates // of which it is told later

	ctx    context.Context // of what follows its tasks
	cancel context.CancelFunc

	mu           sync.Mutex
	lists        map[string]*catalog.Snapshot // notification → of which the client knows
	uris         map[string]string            // that backends have agreed to tell of, and which did
	pendingURIs  map[string]bool              // of which backends have been asked to tell, and have not answered
	acknowledged bool
	ended        bool
	queued       []wire.Message // until then: "MUST be the first message on the stream"
}

const (
	// maxListens bounds those that are open (see share), and maxListensPerClient those of one guest.
	maxListens          = 10_000
	maxListensPerClient = 1000
	// maxListenResources bounds the resources of one of them, and what is kept back before it is
	// acknowledged.
	maxListenResources = 1024
	// ackTimeout is how long backends have to agree to its subscriptions. Those that did not
	// are not among what is acknowledged.
	ackTimeout = 5 * time.Second
)

// listeners are those that are open. The zero value is none.
type listeners struct {
	counter counter

	mu  sync.Mutex
	all map[*listenRequest]bool
}

// add reports whether there is room for one more.
func (l *listeners) add(added *listenRequest) bool {
	if !l.counter.acquire(added.client.principal, maxListens) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*listenRequest]bool)
	}
	l.all[added] = true
	return true
}

// remove takes out what was added, once.
func (l *listeners) remove(added *listenRequest) {
	l.mu.Lock()
	delete(l.all, added)
	l.mu.Unlock()
	l.counter.release(added.client.principal)
}

func (l *listeners) list() []*listenRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.all))
}

// listFilters are the members of a filter that ask for changes of lists.
var listFilters = []struct {
	name, notification, capability string
}{
	{"toolsListChanged", catalog.Tools.ChangedNotification(), "tools"},
	{"promptsListChanged", catalog.Prompts.ChangedNotification(), "prompts"},
	{"resourcesListChanged", catalog.Resources.ChangedNotification(), "resources"},
}

// openListen opens a subscription. It is acknowledged when the backends have agreed to what
// it needs of them, and answered when it ends: because the client takes it back, or
// because the gateway ends.
func (s *Session) openListen(client *statelessClient, r *peer.Request) {
	filter, _ := wire.Lookup(r.Part(wire.PartParams), "notifications")
	uris, err := resourceFilter(filter)
	if err != nil {
		s.fail(r, err)
		return
	}
	tasks, err := s.resolveTaskIDs(client, r)
	if err != nil {
		s.fail(r, err)
		return
	}
	l := &listenRequest{
		g: s.g, s: s, client: client, r: r,
		lists: make(map[string]*catalog.Snapshot), uris: make(map[string]string), pendingURIs: make(map[string]bool),
	}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	if len(client.listeners()) >= maxListensPerClient || !s.g.listeners.add(l) {
		l.cancel()
		s.fail(r, wire.Errorf(wire.CodeInternalError, "Too many subscriptions are open; wait until some have ended"))
		return
	}
	client.retain()
	client.addListener(l)
	s.mu.Lock()
	if s.listenRequests == nil {
		s.listenRequests = make(map[*listenRequest]bool)
	}
	s.listenRequests[l] = true
	s.mu.Unlock()
	if !r.OnCancel(l) {
		l.end()
		return
	}
	client.retain() // until nothing is said to backends any more, even if it ends before
	s.work.Go(func() {
		defer client.release()
		l.activate(filter, uris, tasks)
	})
}

// resourceFilter returns the resources that a filter names.
func resourceFilter(filter []byte) ([]string, *wire.Error) {
	if !wire.IsObject(filter) {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s needs notifications, an object", protocol.MethodSubscriptionsListen)
	}
	list, _ := wire.Lookup(filter, "resourceSubscriptions")
	if wire.IsNull(list) {
		return nil, nil
	}
	var uris []string
	ok, long := true, false
	if !wire.EachElement(list, func(one []byte) bool {
		uri := wire.Unquote(one)
		ok, long = ok && uri != "", long || len(uri) > maxURI
		if !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
		return len(uris) <= maxListenResources
	}) || !ok {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: resourceSubscriptions is an array of URIs")
	}
	if long {
		return nil, errURITooLong()
	}
	if len(uris) > maxListenResources {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: a subscription has at most %d resources", maxListenResources)
	}
	return uris, nil
}

// activate has the backends tell of what the client wants to hear of, and acknowledges what
// they have agreed to.
func (l *listenRequest) activate(filter []byte, uris []string, tasks []*statelessTask) {
	ctx, cancel := context.WithTimeout(l.s.ctx, ackTimeout)
	defer cancel()
	v, _ := l.s.awaitCatalog(ctx, func(v *catalog.View) bool { return v.Settled })
	offered := v.Capabilities(v.Complete)
	var accepted []wire.Member
	for _, f := range listFilters {
		if wanted, _ := wire.Lookup(filter, f.name); string(wanted) == "true" && catalog.Declares(offered, f.capability, "listChanged") {
			accepted = append(accepted, wire.Member{Key: f.name, Text: []byte("true")})
			l.mu.Lock()
			l.lists[f.notification] = v.Snapshot
			l.mu.Unlock()
		}
	}
	if agreed := l.subscribe(ctx, v, uris); len(agreed) > 0 {
		accepted = append(accepted, wire.Member{Key: "resourceSubscriptions", Text: wire.Encode(agreed)})
	}
	if ids := l.pollTasks(l.ctx, tasks); len(ids) > 0 {
		accepted = append(accepted, wire.Member{Key: "taskIds", Text: wire.Encode(ids)})
	}
	ack := wire.NewNotification(protocol.NotificationSubscriptionsAcknowledged,
		wire.EditObject(nil, nil, wire.Member{Key: "notifications", Text: wire.EditObject(nil, nil, accepted...)}))
	l.mu.Lock()
	l.acknowledged = true
	l.notifyLocked(ack)
	for _, m := range l.queued {
		l.notifyLocked(m)
	}
	l.queued = nil
	l.mu.Unlock()
	l.catalogChanged(l.g.Backends.View().Snapshot)
	if len(accepted) == 0 {
		l.finish() // nothing will ever be said
	}
}

// subscribe subscribes to resources at the backends that have them and returns those
// to which these have agreed.
func (l *listenRequest) subscribe(ctx context.Context, v *catalog.View, uris []string) (agreed []string) {
	waiting := make(map[string]peer.ResponseChan)
	backends := make(map[string]string)
	for _, uri := range uris {
		route, ok := v.ResolveResource(uri)
		if !ok {
			route, ok = l.client.links.route(uri)
		}
		if !ok || !v.HasCapability(route.Backend, "resources", "subscribe") {
			continue
		}
		w := make(peer.ResponseChan, 1)
		waiting[uri], backends[uri] = w, route.Backend
		l.mu.Lock()
		l.pendingURIs[uri] = true
		l.mu.Unlock()
		l.client.subscribe(route.Backend, uri, true, w)
	}
	for _, uri := range uris {
		w := waiting[uri]
		if w == nil {
			continue
		}
		refused, late := false, false
		select {
		case resp := <-w:
			refused = resp.Err != nil || resp.Part(wire.PartError) != nil
		case <-ctx.Done():
			late = true // it may agree yet
		}
		switch agrees := l.recordSubscription(uri, backends[uri], !refused && !late); {
		case agrees:
			agreed = append(agreed, uri)
		case !refused:
			l.client.unsubscribeIfUnused(backends[uri], uri)
		}
	}
	return agreed
}

// recordSubscription notes whether a backend tells of a resource from now on. It reports false if it
// does not, or nobody wants to hear of it any more.
func (l *listenRequest) recordSubscription(uri, backend string, agrees bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pendingURIs, uri)
	if !agrees || l.ended {
		return false
	}
	l.uris[uri] = backend
	return true
}

// isSubscribed reports whether the subscription is to a resource, or to what it is a part of.
func (l *listenRequest) isSubscribed(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for subscribed := range l.uris {
		if catalog.SubscriptionCovers(subscribed, uri) {
			return true
		}
	}
	return false
}

// handleNotification hands on what a backend says to the guest, if it is of what the client wants to
// hear.
func (l *listenRequest) handleNotification(backend string, m wire.Message) {
	method := m.Method()
	if method == protocol.NotificationResourceUpdated {
		uri := stringAt(m, "params", "uri")
		switch {
		case !l.isSubscribed(uri):
		case l.s.isBacklogged(backend):
			l.delayedUpdates.add(uri, m, l.s.peer.Backlogged, l.notify)
		default:
			l.notify(m)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acknowledged && l.lists[method] != nil {
		l.notifyLocked(wire.NewNotification(method, nil))
	}
}

// catalogChanged tells of each list that is not the one that the client knows of, if it wants
// to hear of that; and of each of which a backend says that it has changed, for the
// client may keep what goes with it.
func (l *listenRequest) catalogChanged(now *catalog.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.acknowledged {
		return
	}
	for kind := range catalog.Kind(catalog.NumKinds) {
		known := l.lists[kind.ChangedNotification()]
		if known == nil || now.Announcements(kind) == known.Announcements(kind) && now.SameList(kind, known) {
			continue
		}
		l.notifyLocked(wire.NewNotification(kind.ChangedNotification(), nil))
		if kind == catalog.Resources { // which share theirs with the templates
			break
		}
	}
	for notification := range l.lists {
		l.lists[notification] = now
	}
}

// notifyLocked sends a notification of the subscription. It is in order with the others.
func (l *listenRequest) notifyLocked(m wire.Message) {
	l.r.Notify(protocol.SetSubscriptionID(protocol.StripMeta(m), l.r.RemoteID()))
}

// Cancelled implements peer.CancelHandler: the client has taken the subscription back, or is
// gone.
func (l *listenRequest) HandleCancel([]byte) { l.end() }

// finish ends the subscription in the orderly way: its request is answered.
func (l *listenRequest) finish() {
	id := []byte(l.r.RemoteID())
	m := protocol.ToModern(wire.NewResult("0", []byte("{}")), protocol.MethodSubscriptionsListen, l.g.info, true)
	m = protocol.SetResultSubscriptionID(m, wire.ID(id))
	if l.r.Forward(m) {
		l.end()
	}
}

func (l *listenRequest) end() {
	l.mu.Lock()
	ended := l.ended
	l.ended = true
	l.mu.Unlock()
	if ended {
		return
	}
	l.cancel()
	l.s.mu.Lock()
	delete(l.s.listenRequests, l)
	l.s.mu.Unlock()
	l.g.listeners.remove(l)
	l.client.removeListener(l)
	for uri, backend := range l.uris { // nobody else does anything with them any more
		l.client.unsubscribeIfUnused(backend, uri)
	}
	l.client.release()
}

// endListeners ends the subscriptions of a session that is ending.
func (s *Session) endListeners() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.listenRequests))
	s.mu.Unlock()
	for _, l := range open {
		l.finish()
	}
}
