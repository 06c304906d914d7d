package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A listen is a request subscriptions/listen: as long as it is open the client hears of
// what it has asked for, and of nothing else. For backends it is its guest who is
// subscribed: where that has a connection of its own, what its calls change is said
// there.
type listen struct {
	g     *Gateway
	s     *Session
	guest *guest
	r     *peer.Request

	missed missed // of which it is told later

	ctx  context.Context // of what follows its tasks
	stop context.CancelFunc

	mu    sync.Mutex
	lists map[string]*catalog.Snapshot // notification → of which the client knows
	uris  map[string]string            // that backends have agreed to tell of, and which did
	asked map[string]bool              // of which backends have been asked to tell, and have not answered
	acked bool
	over  bool
	held  []wire.Message // until then: "MUST be the first message on the stream"
}

const (
	// maxListens bounds those that are open (see share), and maxListensOf those of one guest.
	maxListens   = 10_000
	maxListensOf = 1000
	// maxListened bounds the resources of one of them, and what is kept back before it is
	// acknowledged.
	maxListened = 1024
	// arming is how long backends have to agree to its subscriptions. Those that did not
	// are not among what is acknowledged.
	arming = 5 * time.Second
)

// listens are those that are open. The zero value is none.
type listens struct {
	tally tally

	mu  sync.Mutex
	all map[*listen]bool
}

// add reports whether there is room for one more.
func (l *listens) add(one *listen) bool {
	if !l.tally.enter(one.guest.principal, maxListens) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*listen]bool)
	}
	l.all[one] = true
	return true
}

// remove takes out what was added, once.
func (l *listens) remove(one *listen) {
	l.mu.Lock()
	delete(l.all, one)
	l.mu.Unlock()
	l.tally.leave(one.guest.principal)
}

func (l *listens) list() []*listen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.all))
}

// flags are the members of a filter that ask for changes of lists.
var flags = []struct {
	name, notification, capability string
}{
	{"toolsListChanged", catalog.Tools.ChangedNotification(), "tools"},
	{"promptsListChanged", catalog.Prompts.ChangedNotification(), "prompts"},
	{"resourcesListChanged", catalog.Resources.ChangedNotification(), "resources"},
}

// listen opens a subscription. It is acknowledged when the backends have agreed to what
// it needs of them, and answered when it ends: because the client takes it back, or
// because the gateway ends.
func (s *Session) listen(guest *guest, r *peer.Request) {
	filter, _ := wire.Lookup(r.Part(wire.PartParams), "notifications")
	uris, err := listened(filter)
	if err != nil {
		s.fail(r, err)
		return
	}
	tasks, err := s.watched(guest, r)
	if err != nil {
		s.fail(r, err)
		return
	}
	l := &listen{
		g: s.g, s: s, guest: guest, r: r,
		lists: make(map[string]*catalog.Snapshot), uris: make(map[string]string), asked: make(map[string]bool),
	}
	l.ctx, l.stop = context.WithCancel(s.ctx)
	if len(guest.listening()) >= maxListensOf || !s.g.listens.add(l) {
		l.stop()
		s.fail(r, wire.Errorf(wire.CodeInternalError, "Too many subscriptions are open; wait until some have ended"))
		return
	}
	guest.stayOn()
	guest.hear(l)
	s.mu.Lock()
	if s.listens == nil {
		s.listens = make(map[*listen]bool)
	}
	s.listens[l] = true
	s.mu.Unlock()
	if !r.OnCancel(l) {
		l.end()
		return
	}
	guest.stayOn() // until nothing is said to backends any more, even if it ends before
	s.work.Go(func() {
		defer guest.leave()
		l.arm(filter, uris, tasks)
	})
}

// listened returns the resources that a filter names.
func listened(filter []byte) ([]string, *wire.Error) {
	if !wire.IsObject(filter) {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s needs notifications, an object", methodListen)
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
		return len(uris) <= maxListened
	}) || !ok {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: resourceSubscriptions is an array of URIs")
	}
	if long {
		return nil, longURI()
	}
	if len(uris) > maxListened {
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: a subscription has at most %d resources", maxListened)
	}
	return uris, nil
}

// arm has the backends tell of what the client wants to hear of, and acknowledges what
// they have agreed to.
func (l *listen) arm(filter []byte, uris []string, tasks []*job) {
	ctx, cancel := context.WithTimeout(l.s.ctx, arming)
	defer cancel()
	v, _ := l.s.await(ctx, func(v *catalog.View) bool { return v.Settled })
	offered := v.Capabilities(v.Complete)
	var honoured []wire.Member
	for _, f := range flags {
		if wanted, _ := wire.Lookup(filter, f.name); string(wanted) == "true" && catalog.Declares(offered, f.capability, "listChanged") {
			honoured = append(honoured, wire.Member{Key: f.name, Text: []byte("true")})
			l.mu.Lock()
			l.lists[f.notification] = v.Snapshot
			l.mu.Unlock()
		}
	}
	if agreed := l.subscribe(ctx, v, uris); len(agreed) > 0 {
		honoured = append(honoured, wire.Member{Key: "resourceSubscriptions", Text: wire.Encode(agreed)})
	}
	if ids := l.watch(l.ctx, tasks); len(ids) > 0 {
		honoured = append(honoured, wire.Member{Key: "taskIds", Text: wire.Encode(ids)})
	}
	ack := wire.NewNotification("notifications/subscriptions/acknowledged",
		wire.EditObject(nil, nil, wire.Member{Key: "notifications", Text: wire.EditObject(nil, nil, honoured...)}))
	l.mu.Lock()
	l.acked = true
	l.sayLocked(ack)
	for _, m := range l.held {
		l.sayLocked(m)
	}
	l.held = nil
	l.mu.Unlock()
	l.changed(l.g.Backends.View().Snapshot)
	if len(honoured) == 0 {
		l.finish() // nothing will ever be said
	}
}

// subscribe subscribes to resources at the backends that have them and returns those
// to which these have agreed.
func (l *listen) subscribe(ctx context.Context, v *catalog.View, uris []string) (agreed []string) {
	waiting := make(map[string]peer.ResponseChan)
	backends := make(map[string]string)
	for _, uri := range uris {
		route, ok := v.ResolveResource(uri)
		if !ok {
			route, ok = l.guest.links.route(uri)
		}
		if !ok || !v.HasCapability(route.Backend, "resources", "subscribe") {
			continue
		}
		w := make(peer.ResponseChan, 1)
		waiting[uri], backends[uri] = w, route.Backend
		l.mu.Lock()
		l.asked[uri] = true
		l.mu.Unlock()
		l.guest.subscribe(route.Backend, uri, true, w)
	}
	for _, uri := range uris {
		w := waiting[uri]
		if w == nil {
			continue
		}
		refused, late := false, false
		select {
		case a := <-w:
			refused = a.Err != nil || a.Part(wire.PartError) != nil
		case <-ctx.Done():
			late = true // it may agree yet
		}
		switch agrees := l.answered(uri, backends[uri], !refused && !late); {
		case agrees:
			agreed = append(agreed, uri)
		case !refused:
			l.guest.unwanted(backends[uri], uri)
		}
	}
	return agreed
}

// answered notes whether a backend tells of a resource from now on. It reports false if it
// does not, or nobody wants to hear of it any more.
func (l *listen) answered(uri, backend string, agrees bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, uri)
	if !agrees || l.over {
		return false
	}
	l.uris[uri] = backend
	return true
}

// wants reports whether the subscription is to a resource, or to what it is a part of.
func (l *listen) wants(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for subscribed := range l.uris {
		if catalog.SubscriptionCovers(subscribed, uri) {
			return true
		}
	}
	return false
}

// told hands on what a backend says to the guest, if it is of what the client wants to
// hear.
func (l *listen) told(backend string, m wire.Message) {
	method := m.Method()
	if method == mcp.MethodNotificationResourceUpdated {
		uri := stringAt(m, "params", "uri")
		switch {
		case !l.wants(uri):
		case l.s.isCrowded(backend):
			l.missed.add(uri, m, l.s.peer.Crowded, l.say)
		default:
			l.say(m)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked && l.lists[method] != nil {
		l.sayLocked(wire.NewNotification(method, nil))
	}
}

// changed tells of each list that is not the one that the client knows of, if it wants
// to hear of that; and of each of which a backend says that it has changed, for the
// client may keep what goes with it.
func (l *listen) changed(now *catalog.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.acked {
		return
	}
	for kind := range catalog.Kind(catalog.NumKinds) {
		known := l.lists[kind.ChangedNotification()]
		if known == nil || now.Announcements(kind) == known.Announcements(kind) && now.SameList(kind, known) {
			continue
		}
		l.sayLocked(wire.NewNotification(kind.ChangedNotification(), nil))
		if kind == catalog.Resources { // which share theirs with the templates
			break
		}
	}
	for notification := range l.lists {
		l.lists[notification] = now
	}
}

// sayLocked sends a notification of the subscription. It is in order with the others.
func (l *listen) sayLocked(m wire.Message) {
	l.r.Notify(protocol.SetSubscriptionID(protocol.StripMeta(m), l.r.RemoteID()))
}

// Cancelled implements peer.CancelHandler: the client has taken the subscription back, or is
// gone.
func (l *listen) HandleCancel([]byte) { l.end() }

// finish ends the subscription in the orderly way: its request is answered.
func (l *listen) finish() {
	id := []byte(l.r.RemoteID())
	m := protocol.ToModern(wire.NewResult("0", []byte("{}")), methodListen, l.g.info, true)
	m = protocol.SetResultSubscriptionID(m, wire.ID(id))
	if l.r.Forward(m) {
		l.end()
	}
}

func (l *listen) end() {
	l.mu.Lock()
	over := l.over
	l.over = true
	l.mu.Unlock()
	if over {
		return
	}
	l.stop()
	l.s.mu.Lock()
	delete(l.s.listens, l)
	l.s.mu.Unlock()
	l.g.listens.remove(l)
	l.guest.unhear(l)
	for uri, backend := range l.uris { // nobody else does anything with them any more
		l.guest.unwanted(backend, uri)
	}
	l.guest.leave()
}

// endListens ends the subscriptions of a session that is ending.
func (s *Session) endListens() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.listens))
	s.mu.Unlock()
	for _, l := range open {
		l.finish()
	}
}
