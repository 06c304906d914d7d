package backends

import (
	"maps"
	"slices"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// subscriptions are the resources that sessions want to hear of over one line. The
// zero value is none.
type subscriptions struct {
	byURI map[string]map[string]bool // URI → sessions, and whether the backend has agreed
	count int
	each  map[string]int // session → how many
}

// maxSubscriptions bounds those of one line, maxSubscriptionsOf those of one session among
// them, so that it leaves room. What is beyond works all the same, but is not restored when the
// connection has to be made anew, and over a shared connection brings no updates; at a backend
// of the stateless era it is refused.
const (
	maxSubscriptions   = 10_000
	maxSubscriptionsOf = maxSubscriptions / 2
)

func (s *subscriptions) empty() bool { return s.count == 0 }

func (s *subscriptions) add(uri, session string) bool {
	_, known := s.byURI[uri][session]
	switch {
	case known:
		return true
	case s.count >= maxSubscriptions || s.each[session] >= maxSubscriptionsOf:
		return false
	case s.byURI == nil:
		s.byURI, s.each = make(map[string]map[string]bool), make(map[string]int)
	}
	if s.byURI[uri] == nil {
		s.byURI[uri] = make(map[string]bool)
	}
	s.byURI[uri][session] = false
	s.count++
	s.each[session]++
	return true
}

// remove reports whether nobody is subscribed to the URI any more.
func (s *subscriptions) remove(uri, session string) (last bool) {
	if _, known := s.byURI[uri][session]; known {
		delete(s.byURI[uri], session)
		s.count--
		if s.each[session]--; s.each[session] == 0 {
			delete(s.each, session)
		}
	}
	if len(s.byURI[uri]) > 0 {
		return false
	}
	delete(s.byURI, uri)
	return true
}

// removeAll removes those of a session, or those of them alone to which the backend has
// agreed. It returns their URIs, and those to which nobody is subscribed any more.
func (s *subscriptions) removeAll(session string, agreedTo bool) (removed, last []string) {
	for _, uri := range s.uris() {
		if agreed, known := s.byURI[uri][session]; known && (agreed || !agreedTo) {
			removed = append(removed, uri)
			if s.remove(uri, session) {
				last = append(last, uri)
			}
		}
	}
	return removed, last
}

// agreed notes that the backend has agreed.
func (s *subscriptions) agreed(uri, session string) {
	if _, known := s.byURI[uri][session]; known {
		s.byURI[uri][session] = true
	}
}

// refused removes a subscription to which the backend has not agreed, neither now
// nor before.
func (s *subscriptions) refused(uri, session string) {
	if agreed, known := s.byURI[uri][session]; known && !agreed {
		s.remove(uri, session)
	}
}

// agreedTo returns the URIs to which the backend has agreed.
func (s *subscriptions) agreedTo() (uris []string) {
	for _, uri := range s.uris() {
		if slices.Contains(slices.Collect(maps.Values(s.byURI[uri])), true) {
			uris = append(uris, uri)
		}
	}
	return uris
}

func (s *subscriptions) uris() []string { return slices.Sorted(maps.Keys(s.byURI)) }

// of returns the sessions that want to hear of a resource, be it a part of what
// they are subscribed to ("the resource, or a sub-resource of it").
func (s *subscriptions) of(uri string) []string {
	all := make(map[string]bool)
	for subscribed, sessions := range s.byURI {
		if catalog.SubscriptionCovers(subscribed, uri) {
			maps.Copy(all, sessions)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// bySession returns to what of each session's the backend has agreed.
func (s *subscriptions) bySession() map[string][]string {
	all := make(map[string][]string)
	for _, uri := range s.uris() {
		for session, agreed := range s.byURI[uri] {
			if agreed {
				all[session] = append(all[session], uri)
			}
		}
	}
	return all
}

func subscribeAll(uris []string) (requests []wire.Message) {
	for _, uri := range uris {
		requests = append(requests, subscribe(uri, true))
	}
	return requests
}

func subscribe(uri string, on bool) wire.Message {
	method := "resources/unsubscribe"
	if on {
		method = "resources/subscribe"
	}
	return wire.NewRequest("0", method, wire.Encode(map[string]string{"uri": uri}))
}

func updated(uri string) wire.Message {
	return wire.NewNotification("notifications/resources/updated", wire.Encode(map[string]string{"uri": uri}))
}

// subscribe sends a subscription.
func (b *Backend) subscribe(uri string, m wire.Message, c *peer.Call) {
	sub := &subscribing{ResponseHandler: c.Handler, uri: uri, session: c.SessionID}
	c.Handler = sub
	b.line(c.SessionID, false).send(waiting{m: m, c: c, sub: sub})
}

// subscribing is the Asker of a subscription.
type subscribing struct {
	peer.ResponseHandler
	l            *line // that it is sent over, or waits for: there it is held; nil before that
	uri, session string
}

// holdLocked notes a subscription that is sent over the line, or waits for that. It counts
// from now on, so that nobody else who leaves takes it along, and no more if the backend
// refuses it. It reports false if there is no room for it.
func (l *line) holdLocked(s *subscribing) bool {
	s.l = l
	return l.subs.add(s.uri, s.session)
}

// Done implements peer.ResponseHandler.
func (s *subscribing) OnResponse(m wire.Message, err error) {
	if s.l != nil {
		s.l.subscribed(s, err == nil && m.Part(wire.PartError) == nil)
	}
	s.ResponseHandler.OnResponse(m, err)
}

// subscribed notes what came of a subscription that was sent over the line. One to which
// the backend has agreed after it was retired holds at the one that has its name now.
func (l *line) subscribed(s *subscribing, agreed bool) {
	l.mu.Lock()
	retired := l.retired
	switch {
	case retired:
	case agreed:
		l.subs.agreed(s.uri, s.session)
	default:
		l.subs.refused(s.uri, s.session)
	}
	l.mu.Unlock()
	if retired && agreed {
		l.b.passOnSubscriptions(s.session, []string{s.uri})
	}
}

// unsubscribe takes a subscription back where it is held.
func (b *Backend) unsubscribe(uri string, m wire.Message, c *peer.Call) {
	l := b.line(c.SessionID, true)
	if l != b.shared && b.shared.holds(uri, c.SessionID) {
		if l != nil && l.holds(uri, c.SessionID) { // it has waited there since before the session had its line, and was asked for again
			b.shared.unsubscribe(uri, m, &peer.Call{Handler: nobody{}, SessionID: c.SessionID})
		} else {
			l = b.shared
		}
	}
	if l == nil {
		l = b.line(c.SessionID, false)
	}
	l.unsubscribe(uri, m, c)
}

func (l *line) holds(uri, session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.subs.byURI[uri][session]
	return held
}

// unsubscribe takes a subscription back; the backend is told if it was the last
// one to the URI. One that still waits is not sent any more, for it might be over another
// line.
func (l *line) unsubscribe(uri string, m wire.Message, c *peer.Call) {
	l.mu.Lock()
	early := l.notSentLocked(uri, c.SessionID)
	known := len(early) == 0 || l.subs.byURI[uri][c.SessionID] // to the backend
	last := l.subs.remove(uri, c.SessionID)
	l.mu.Unlock()
	for _, w := range early {
		w.sub.ResponseHandler.OnResponse(wire.NewResult("0", nothing), nil) // the backend has agreed to nothing
	}
	if last && known {
		c.Handler = &unsubscribing{ResponseHandler: c.Handler, l: l, uri: uri}
		l.send(waiting{m: m, c: c, moved: true})
		return
	}
	c.Handler.OnResponse(wire.NewResult("0", nothing), nil)
}

// notSentLocked takes out what waits to subscribe a session to a URI.
func (l *line) notSentLocked(uri, session string) (early []waiting) {
	var rest []waiting
	for _, w := range l.waiting {
		if w.sub != nil && w.sub.uri == uri && w.sub.session == session {
			early = append(early, w)
		} else {
			rest = append(rest, w)
		}
	}
	l.waiting = rest
	return early
}

// unsubscribing is the Asker of what tells a backend to stop. If somebody has
// subscribed meanwhile, whose request may have arrived before, the backend is asked
// once more.
type unsubscribing struct {
	peer.ResponseHandler
	l   *line
	uri string
}

// Done implements peer.ResponseHandler.
func (u *unsubscribing) OnResponse(m wire.Message, err error) {
	u.l.mu.Lock()
	wanted, p, server := len(u.l.subs.byURI[u.uri]) > 0, u.l.peer, u.l.server
	u.l.mu.Unlock()
	if wanted && p != nil && !server.stateless && u.l.b.lists(catalog.Resources, u.uri) {
		p.Send(subscribe(u.uri, true), &peer.Call{Handler: nobody{}, Timeout: restoring})
	}
	u.ResponseHandler.OnResponse(m, err)
}

// leave takes back the subscriptions of a session that is over, and ends what waits to subscribe
// it: it would be subscribed for ever.
func (l *line) leave(session string) {
	var left []waiting
	l.mu.Lock()
	for _, list := range []*[]waiting{&l.waiting, &l.arming} {
		var rest []waiting
		for _, w := range *list {
			if w.sub != nil && w.sub.session == session {
				left = append(left, w)
			} else {
				rest = append(rest, w)
			}
		}
		*list = rest
	}
	l.mu.Unlock()
	for _, w := range left {
		w.c.Handler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
	}
	l.drop(session, false)
}

// drop takes back a session's subscriptions over the line, or those of them alone to which
// the backend has agreed, and returns their URIs. It is told of those that nobody else has.
func (l *line) drop(session string, agreedTo bool) []string {
	l.mu.Lock()
	dropped, last := l.subs.removeAll(session, agreedTo)
	p, server := l.peer, l.server
	if len(last) > 0 {
		l.pokeListening()
	}
	l.mu.Unlock()
	if p == nil || server.stateless {
		return dropped
	}
	for _, uri := range last {
		to := &unsubscribing{ResponseHandler: nobody{}, l: l, uri: uri}
		p.Send(subscribe(uri, false), &peer.Call{Handler: to, Timeout: restoring})
	}
	return dropped
}

// nobody waits for an answer.
type nobody struct{}

func (nobody) OnProgress(wire.Message)        {}
func (nobody) OnResponse(wire.Message, error) {}

// updated passes on that a resource has changed: to the sessions that have
// subscribed to it, if several share the line. An update of a resource that the filters do not
// permit is dropped.
func (l *line) updated(m wire.Message, on peer.Origin) {
	set, backend := l.b.set, l.b.cfg.Name
	if !l.b.lists(catalog.Resources, subject(m)) {
		return
	}
	if l.own() {
		set.clients().HandleNotification(l.session, backend, m, on)
		return
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	l.mu.Lock()
	sessions := l.subs.of(wire.Unquote(value))
	l.mu.Unlock()
	switch {
	case !set.SingleClient:
		on = peer.Origin{}
	case len(sessions) == 0:
		sessions = []string{set.soleSession()}
	}
	for _, session := range sessions {
		set.clients().HandleNotification(session, backend, m, on)
	}
}
