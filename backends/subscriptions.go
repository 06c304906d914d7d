package backends

import (
	"maps"
	"slices"

	"mcpgateway/catalog"
)

// subscriptions are the resources that sessions want to hear of over one line. The
// zero value is none.
type subscriptions struct {
	byURI      map[string]map[string]bool // URI → sessions, and whether the backend has agreed
	total      int
	perSession map[string]int // session → how many
}

// maxSubscriptions bounds those of one line, maxSubscriptionsPerSession those of one session among
// them, so that it leaves room. What is beyond works all the same, but is not restored when the
// connection has to be made anew, and over a shared connection brings no updates; at a backend
// of the stateless era it is refused.
const (
	maxSubscriptions           = 10_000
	maxSubscriptionsPerSession = maxSubscriptions / 2
)

func (s *subscriptions) empty() bool { return s.total == 0 }

func (s *subscriptions) add(uri, session string) bool {
	_, known := s.byURI[uri][session]
	switch {
	case known:
		return true
	case s.total >= maxSubscriptions || s.perSession[session] >= maxSubscriptionsPerSession:
		return false
	case s.byURI == nil:
		s.byURI, s.perSession = make(map[string]map[string]bool), make(map[string]int)
	}
	if s.byURI[uri] == nil {
		s.byURI[uri] = make(map[string]bool)
	}
	s.byURI[uri][session] = false
	s.total++
	s.perSession[session]++
	return true
}

// remove reports whether nobody is subscribed to the URI any more.
func (s *subscriptions) remove(uri, session string) (last bool) {
	if _, known := s.byURI[uri][session]; known {
		delete(s.byURI[uri], session)
		s.total--
		if s.perSession[session]--; s.perSession[session] == 0 {
			delete(s.perSession, session)
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

// accept notes that the backend has agreed.
func (s *subscriptions) accept(uri, session string) {
	if _, known := s.byURI[uri][session]; known {
		s.byURI[uri][session] = true
	}
}

// reject removes a subscription to which the backend has not agreed, neither now
// nor before.
func (s *subscriptions) reject(uri, session string) {
	if agreed, known := s.byURI[uri][session]; known && !agreed {
		s.remove(uri, session)
	}
}

// acceptedURIs returns the URIs to which the backend has agreed.
func (s *subscriptions) acceptedURIs() (uris []string) {
	for _, uri := range s.uris() {
		if slices.Contains(slices.Collect(maps.Values(s.byURI[uri])), true) {
			uris = append(uris, uri)
		}
	}
	return uris
}

func (s *subscriptions) uris() []string { return slices.Sorted(maps.Keys(s.byURI)) }

// sessionsFor returns the sessions that want to hear of a resource, be it a part of what
// they are subscribed to ("the resource, or a sub-resource of it").
func (s *subscriptions) sessionsFor(uri string) []string {
	all := make(map[string]bool)
	for subscribed, sessions := range s.byURI {
		if catalog.SubscriptionCovers(subscribed, uri) {
			maps.Copy(all, sessions)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// acceptedBySession returns to what of each session's the backend has agreed.
func (s *subscriptions) acceptedBySession() map[string][]string {
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
