package gateway

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/wire"
)

// A listenRequest is an open subscriptions/listen. While it is open, the client gets the
// notifications that its filter selects, and no others. The subscriber at the backends is the
// statelessClient, so that a per-session connection also reports changes made by the client's own
// calls.
type listenRequest struct {
	g      *Gateway
	conn   *clientConn
	client *statelessClient
	r      *peer.Request

	delayedUpdates delayedUpdates

	ctx    context.Context // of the goroutines that poll its tasks
	cancel context.CancelFunc

	mu           sync.Mutex
	lists        map[string]*catalog.Snapshot // by notification: snapshot that the client knows
	uris         map[string]string            // backends by subscribed URI
	pendingURIs  map[string]bool              // sent to a backend, no response yet
	acknowledged bool
	ended        bool
	// updates that wait for the acknowledgement, which "MUST be the first message on the stream"
	early heldNotifications
}

const (
	// maxListens bounds the open listenRequests in total (see [quota.Share]), and
	// maxListensPerClient those of one stateless client.
	maxListens          = 10_000
	maxListensPerClient = 1000
	// maxListenResources bounds the resources of one listenRequest.
	maxListenResources = 1024
	// ackTimeout bounds the wait for the catalog and for backends to confirm subscriptions. The
	// acknowledgement omits unconfirmed subscriptions.
	ackTimeout = 5 * time.Second
)

// listFilters are the members of a filter that select changes of lists.
var listFilters = []struct {
	name, notification, capability string
}{
	{"toolsListChanged", catalog.Tools.ChangedNotification(), "tools"},
	{"promptsListChanged", catalog.Prompts.ChangedNotification(), "prompts"},
	{"resourcesListChanged", catalog.Resources.ChangedNotification(), "resources"},
}

// openListen opens a subscription. The acknowledgement is sent when the backends have confirmed or
// ackTimeout has expired. The response is sent when the connection closes, or right after an
// acknowledgement that accepts nothing. A cancelled subscription gets no response.
func (cc *clientConn) openListen(client *statelessClient, r *peer.Request) {
	filter, _ := wire.Lookup(r.Part(wire.PartParams), "notifications")
	uris, err := resourceFilter(filter)
	if err != nil {
		cc.failModern(r, err)
		return
	}
	tasks, err := resolveTaskIDs(client, r)
	if err != nil {
		cc.failModern(r, err)
		return
	}
	l := &listenRequest{
		g: cc.g, conn: cc, client: client, r: r,
		lists: make(map[string]*catalog.Snapshot), uris: make(map[string]string),
		pendingURIs: make(map[string]bool),
	}
	l.ctx, l.cancel = context.WithCancel(cc.work.ctx)
	if len(client.listens.list()) >= maxListensPerClient ||
		!client.principal.AcquireShare(&cc.g.listens, maxListens) {
		l.cancel()
		cc.failModern(r, wire.Errorf(wire.CodeInternalError,
			"Too many subscriptions are open; wait until some have ended"))
		return
	}
	client.retain()
	client.listens.add(l)
	added := cc.listens.add(l)
	switch {
	case !r.OnCancel(l):
		l.end()
		return
	case !added: // the connection is closing
		l.finish()
		return
	}
	client.retain() // until activate has returned, even if the subscription ends earlier
	if !cc.work.Go(func() {
		defer client.release()
		l.activate(filter, uris, tasks)
	}) {
		client.release()
	}
}

// resourceFilter returns the URIs of the resources that a filter names, each once. It returns an
// error if the filter is invalid or exceeds a limit.
func resourceFilter(filter []byte) ([]string, *wire.Error) {
	if !wire.IsObject(filter) {
		return nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: %s needs notifications, an object", protocol.MethodSubscriptionsListen)
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
		return nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: resourceSubscriptions is an array of URIs")
	}
	if long {
		return nil, errURITooLong()
	}
	if len(uris) > maxListenResources {
		return nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: a subscription has at most %d resources", maxListenResources)
	}
	return uris, nil
}

// activate subscribes at the backends and acknowledges the confirmed subscriptions.
func (l *listenRequest) activate(filter []byte, uris []string, tasks []*statelessTask) {
	ctx, cancel := context.WithTimeout(l.ctx, ackTimeout)
	defer cancel()
	v, _ := awaitCatalog(ctx, l.conn.view, isSettled)
	offered := v.Capabilities(v.Complete)
	var accepted []wire.Member
	for _, f := range listFilters {
		if wanted, _ := wire.Lookup(filter, f.name); string(wanted) == "true" &&
			catalog.Declares(offered, f.capability, "listChanged") {
			accepted = append(accepted, wire.Member{Key: f.name, Text: []byte("true")})
			l.mu.Lock()
			l.lists[f.notification] = v.Snapshot
			l.mu.Unlock()
		}
	}
	agreed, limited := l.subscribe(ctx, v, uris)
	if len(agreed) > 0 {
		accepted = append(accepted, wire.Member{Key: "resourceSubscriptions",
			Text: wire.Encode(agreed)})
	}
	tasks = l.admitTasks(tasks)
	if len(tasks) > 0 {
		var ids []string
		for _, st := range tasks {
			ids = append(ids, st.id)
		}
		accepted = append(accepted, wire.Member{Key: "taskIds", Text: wire.Encode(ids)})
	}
	if limited != nil && len(accepted) == 0 {
		l.fail(limited)
		return
	}
	ack := wire.NewNotification(protocol.NotificationSubscriptionsAcknowledged,
		wire.EditObject(nil, nil, wire.Member{Key: "notifications",
			Text: wire.EditObject(nil, nil, accepted...)}))
	l.mu.Lock()
	l.acknowledged = true
	l.notifyLocked(ack)
	for _, m := range l.early.takeAll(&l.g.heldBytes) {
		if covers(l.uris, updatedURI(m)) {
			l.notifyLocked(m)
		}
	}
	l.mu.Unlock()
	l.pollTasks(l.ctx, tasks)
	l.catalogChanged(l.conn.view())
	if len(accepted) == 0 {
		l.finish() // there will be no notifications
	}
}

// subscribe subscribes to resources at their backends and returns the URIs of the confirmed
// subscriptions. If a rate limit refuses some of them, limited is the first error.
func (l *listenRequest) subscribe(ctx context.Context, v *catalog.View,
	uris []string) (agreed []string, limited *wire.Error) {
	type pending struct {
		uri, backend string
		responseWaiter
	}
	var all []pending
	for _, uri := range uris {
		route, ok := v.ResolveResource(uri)
		if !ok {
			route, ok = l.client.links.route(uri)
		}
		if !ok || !v.HasCapability(route.Backend, "resources", "subscribe") ||
			!l.client.maySubscribe(route.Backend, uri) {
			continue
		}
		if err := takeRate(l.conn, l.r.Method(), route.Backend, ratelimit.Call); err != nil {
			limited = cmp.Or(limited, err)
			continue
		}
		p := pending{uri, route.Backend, make(responseWaiter, 1)}
		all = append(all, p)
		l.mu.Lock()
		l.pendingURIs[uri] = true
		l.mu.Unlock()
		l.client.subscribe(p.backend, uri, p.responseWaiter)
	}
	for _, p := range all {
		refused, late := false, false
		select {
		case resp := <-p.responseWaiter:
			refused = resp.Err != nil || resp.Message.Part(wire.PartError) != nil
		case <-ctx.Done():
			late = true // the backend may still confirm
		}
		l.mu.Lock()
		delete(l.pendingURIs, p.uri)
		agrees := !refused && !late && !l.ended
		if agrees {
			l.uris[p.uri] = p.backend
		}
		l.mu.Unlock()
		switch {
		case agrees:
			agreed = append(agreed, p.uri)
		case !refused:
			l.client.unsubscribeIfUnused(p.backend, p.uri)
		}
	}
	return agreed, limited
}

// covers reports whether subscribed contains this URI, or that of a resource that contains the
// resource with this URI.
func covers[V any](subscribed map[string]V, uri string) bool {
	for one := range subscribed {
		if catalog.SubscriptionCovers(one, uri) {
			return true
		}
	}
	return false
}

func updatedURI(m wire.Message) string { return stringAt(m, "params", "uri") }

// handleNotification forwards a backend's notification, if the filter selects it.
func (l *listenRequest) handleNotification(backend string, m wire.Message) {
	method := m.Method()
	if method == protocol.NotificationResourceUpdated {
		l.forwardUpdate(backend, m)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acknowledged && l.lists[method] != nil {
		l.notifyLocked(wire.NewNotification(method, nil))
	}
}

// forwardUpdate forwards a resource update. Before the acknowledgement it stores the update, also
// if the backend has not yet confirmed the subscription: the confirmation may have been read, but
// not recorded.
func (l *listenRequest) forwardUpdate(backend string, m wire.Message) {
	uri := updatedURI(m)
	l.mu.Lock()
	early, subscribed := !l.acknowledged, covers(l.uris, uri)
	if early && !l.ended && (subscribed || covers(l.pendingURIs, uri)) {
		l.early.put(m, &l.g.heldBytes)
	}
	l.mu.Unlock()
	if !early && subscribed {
		l.delayedUpdates.notify(l.conn, backend, m, l.notify)
	}
}

// catalogChanged notifies the client of each selected list that differs from the known snapshot.
// It also notifies the client of an equal list that a backend has announced as changed, because
// the client may cache data that depends on the list. Like [Session.notifyCatalogChanged], it waits
// until the view is settled.
func (l *listenRequest) catalogChanged(v *catalog.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.acknowledged || !v.Settled {
		return
	}
	now := v.Snapshot
	for kind := range catalog.Kind(catalog.NumKinds) {
		known := l.lists[kind.ChangedNotification()]
		if known == nil || now.Announcements(kind) == known.Announcements(kind) &&
			now.SameList(kind, known) {
			continue
		}
		l.notifyLocked(wire.NewNotification(kind.ChangedNotification(), nil))
		if kind == catalog.Resources { // templates have the same notification
			break
		}
	}
	for notification := range l.lists {
		l.lists[notification] = now
	}
}

// notify sends a notification of the subscription. It must be called after the acknowledgement.
func (l *listenRequest) notify(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notifyLocked(m)
}

// notifyLocked sends a notification of the subscription, in order.
func (l *listenRequest) notifyLocked(m wire.Message) {
	l.r.Notify(protocol.SetSubscriptionID(protocol.StripMeta(m), l.r.RemoteID()))
}

// HandleCancel implements peer.CancelHandler: the client has cancelled the subscription or
// disconnected.
func (l *listenRequest) HandleCancel([]byte) { l.end() }

// finish ends the subscription with a response to its request.
func (l *listenRequest) finish() {
	id := []byte(l.r.RemoteID())
	m := protocol.ToModern(wire.NewResult("0", []byte("{}")), protocol.MethodSubscriptionsListen,
		l.g.info, true)
	m = protocol.SetResultSubscriptionID(m, wire.ID(id))
	if l.r.Forward(m) {
		l.end()
	}
}

// fail ends the subscription with an error.
func (l *listenRequest) fail(err *wire.Error) {
	if l.r.Fail(err) {
		l.end()
	}
}

func (l *listenRequest) end() {
	l.mu.Lock()
	ended := l.ended
	l.ended = true
	l.early.takeAll(&l.g.heldBytes)
	l.mu.Unlock()
	if ended {
		return
	}
	l.cancel()
	l.conn.listens.remove(l)
	l.client.listens.remove(l)
	l.g.listens.Release(l.client.principal.Key())
	for uri, backend := range l.uris { // after the end, no other goroutine uses l.uris
		l.client.unsubscribeIfUnused(backend, uri)
	}
	l.client.release()
}
