package backends

import (
	"maps"
	"slices"

	"mcpgateway/catalog"
	"mcpgateway/peer"
	"mcpgateway/wire"
)

// subscriptions are the resources that sessions want to hear of over one line. The
// zero value is none.
type subscriptions struct {
	byURI map[string]map[string]bool // URI → sessions, and whether the backend has agreed
	count int
}

// maxSubscriptions bounds those of one line. What is beyond works all the same, but
// is not restored when the connection has to be made anew, and over a shared
// connection brings no updates.
const maxSubscriptions = 10_000

func (s *subscriptions) empty() bool { return s.count == 0 }

func (s *subscriptions) add(uri, session string) bool {
	_, known := s.byURI[uri][session]
	switch {
	case known:
		return true
	case s.count >= maxSubscriptions:
		return false
	case s.byURI == nil:
		s.byURI = make(map[string]map[string]bool)
	}
	if s.byURI[uri] == nil {
		s.byURI[uri] = make(map[string]bool)
	}
	s.byURI[uri][session] = false
	s.count++
	return true
}

// remove reports whether nobody is subscribed to the URI any more.
func (s *subscriptions) remove(uri, session string) (last bool) {
	if _, known := s.byURI[uri][session]; known {
		delete(s.byURI[uri], session)
		s.count--
	}
	if len(s.byURI[uri]) > 0 {
		return false
	}
	delete(s.byURI, uri)
	return true
}

// removeAll removes those of a session and returns the URIs to which nobody is
// subscribed any more.
func (s *subscriptions) removeAll(session string) (last []string) {
	for _, uri := range s.uris() {
		if _, known := s.byURI[uri][session]; known && s.remove(uri, session) {
			last = append(last, uri)
		}
	}
	return last
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
		if catalog.Covers(subscribed, uri) {
			maps.Copy(all, sessions)
		}
	}
	return slices.Sorted(maps.Keys(all))
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

// subscribe sends a subscription. It counts from now on, so that nobody else who
// leaves takes it along, and no more if the backend refuses it.
func (l *line) subscribe(uri string, m wire.Message, c *peer.Pending) {
	l.mu.Lock()
	kept := l.subs.add(uri, c.Owner)
	l.mu.Unlock()
	if !kept {
		l.log.Warn("too many subscriptions; this one is not kept", "max", maxSubscriptions)
	}
	c.To = &subscribing{Asker: c.To, l: l, uri: uri, session: c.Owner}
	l.send(m, c)
}

type subscribing struct {
	peer.Asker
	l            *line
	uri, session string
}

// Done implements peer.Asker.
func (s *subscribing) Done(m wire.Message, err error) {
	s.l.mu.Lock()
	if err == nil && m.Part(wire.PartError) == nil {
		s.l.subs.agreed(s.uri, s.session)
	} else {
		s.l.subs.refused(s.uri, s.session)
	}
	s.l.mu.Unlock()
	s.Asker.Done(m, err)
}

// unsubscribe takes a subscription back; the backend is told if it was the last
// one to the URI.
func (l *line) unsubscribe(uri string, m wire.Message, c *peer.Pending) {
	l.mu.Lock()
	last := l.subs.remove(uri, c.Owner)
	l.mu.Unlock()
	if last {
		c.To = &unsubscribing{Asker: c.To, l: l, uri: uri}
		l.send(m, c)
		return
	}
	c.To.Done(wire.NewResult("0", []byte("{}")), nil)
}

// unsubscribing is the Asker of what tells a backend to stop. If somebody has
// subscribed meanwhile, whose request may have arrived before, the backend is asked
// once more.
type unsubscribing struct {
	peer.Asker
	l   *line
	uri string
}

// Done implements peer.Asker.
func (u *unsubscribing) Done(m wire.Message, err error) {
	u.l.mu.Lock()
	wanted, p, server := len(u.l.subs.byURI[u.uri]) > 0, u.l.peer, u.l.server
	u.l.mu.Unlock()
	if wanted && p != nil && !server.stateless {
		p.Send(subscribe(u.uri, true), &peer.Pending{To: nobody{}, Timeout: restoring})
	}
	u.Asker.Done(m, err)
}

// unsubscribeAll takes back what a session that is over has subscribed to over the
// line.
func (l *line) unsubscribeAll(session string) {
	l.mu.Lock()
	last := l.subs.removeAll(session)
	p, server := l.peer, l.server
	if len(last) > 0 {
		l.pokeListening()
	}
	l.mu.Unlock()
	if p == nil || server.stateless {
		return
	}
	for _, uri := range last {
		to := &unsubscribing{Asker: nobody{}, l: l, uri: uri}
		p.Send(subscribe(uri, false), &peer.Pending{To: to, Timeout: restoring})
	}
}

// nobody waits for an answer.
type nobody struct{}

func (nobody) Progressed(wire.Message)  {}
func (nobody) Done(wire.Message, error) {}

// updated passes on that a resource has changed: to the sessions that have
// subscribed to it, if several share the line.
func (l *line) updated(m wire.Message, about *peer.Pending) {
	set, backend := l.b.set, l.b.cfg.Name
	if l.own() {
		set.clients().Told(l.session, backend, m, about)
		return
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	l.mu.Lock()
	sessions := l.subs.of(wire.Unquote(value))
	l.mu.Unlock()
	switch {
	case !set.Solo:
		about = nil
	case len(sessions) == 0:
		sessions = []string{set.soleSession()}
	}
	for _, session := range sessions {
		set.clients().Told(session, backend, m, about)
	}
}
