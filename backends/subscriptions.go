package backends

import (
	"maps"
	"slices"

	"mcpgateway/catalog"
	"mcpgateway/internal/quota"
)

// subscriptions is the state of the resource subscriptions over one backendConn. It is used with
// backendConn.mu held, except for the channel.
type subscriptions struct {
	subscriptionTable
	// URIs to which the server must still be subscribed: see put and resubscribePermitted
	resubscribe []string
	listen      *listenStream // the current listen of a modern server; nil = none
	opening     *listenStream // listen that is not acknowledged yet; nil = none
	reopen      chan struct{} // capacity 1: the wanted URIs have changed
}

// signalReopen lets the listenLoop compare its listen with the wanted URIs.
func (s *subscriptions) signalReopen() { signal(s.reopen) }

// isListenedTo reports whether the current listen covers a URI.
func (s *subscriptions) isListenedTo(uri string) bool {
	return s.listen != nil && slices.Contains(s.listen.uris, uri) && s.listen.covers(uri)
}

// takeAccepted removes all subscriptions, and returns the accepted URIs of each session.
func (s *subscriptions) takeAccepted() map[string][]string {
	accepted := s.acceptedBySession()
	s.subscriptionTable, s.resubscribe = subscriptionTable{}, nil
	return accepted
}

// A subscriptionTable contains the resource subscriptions of sessions. The zero value is empty.
type subscriptionTable struct {
	// URI → session → whether the backend has accepted the subscription
	byURI   map[string]map[string]bool
	counter quota.Counter[string] // number of subscriptions by session
}

// maxSubscriptions bounds the subscriptions of one connection, and maxSubscriptionsPerSession the
// subscriptions of one session over it. At a legacy backend, a subscription beyond the limits
// works, but is not restored on a new connection, and receives no updates over a connection that
// several clients share. At a modern backend, such a subscription is refused.
const (
	maxSubscriptions           = 10_000
	maxSubscriptionsPerSession = maxSubscriptions / 2
)

func (s *subscriptionTable) empty() bool { return s.counter.Total() == 0 }

func (s *subscriptionTable) add(uri, session string) bool {
	_, known := s.byURI[uri][session]
	switch {
	case known:
		return true
	case s.counter.Acquire(session, maxSubscriptions, maxSubscriptionsPerSession) != quota.None:
		return false
	case s.byURI == nil:
		s.byURI = make(map[string]map[string]bool)
	}
	if s.byURI[uri] == nil {
		s.byURI[uri] = make(map[string]bool)
	}
	s.byURI[uri][session] = false
	return true
}

// remove removes a subscription and reports whether the URI has no further subscriptions.
func (s *subscriptionTable) remove(uri, session string) (last bool) {
	if _, known := s.byURI[uri][session]; known {
		delete(s.byURI[uri], session)
		s.counter.Release(session)
	}
	if len(s.byURI[uri]) > 0 {
		return false
	}
	delete(s.byURI, uri)
	return true
}

// removeAll removes the subscriptions of a session, or only the accepted ones. It returns their
// URIs, and the URIs without further subscriptions.
func (s *subscriptionTable) removeAll(session string, acceptedOnly bool) (removed, last []string) {
	for _, uri := range s.uris() {
		if accepted, known := s.byURI[uri][session]; known && (accepted || !acceptedOnly) {
			removed = append(removed, uri)
			if s.remove(uri, session) {
				last = append(last, uri)
			}
		}
	}
	return removed, last
}

// accept notes that the backend has accepted a subscription.
func (s *subscriptionTable) accept(uri, session string) {
	if _, known := s.byURI[uri][session]; known {
		s.byURI[uri][session] = true
	}
}

// reject removes a subscription that the backend has never accepted.
func (s *subscriptionTable) reject(uri, session string) {
	if accepted, known := s.byURI[uri][session]; known && !accepted {
		s.remove(uri, session)
	}
}

// acceptedURIs returns the URIs that the backend has accepted.
func (s *subscriptionTable) acceptedURIs() (uris []string) {
	for _, uri := range s.uris() {
		if slices.Contains(slices.Collect(maps.Values(s.byURI[uri])), true) {
			uris = append(uris, uri)
		}
	}
	return uris
}

func (s *subscriptionTable) uris() []string { return slices.Sorted(maps.Keys(s.byURI)) }

// sessionsFor returns the sessions that are subscribed to a resource or to a resource that contains
// it ("the resource, or a sub-resource of it").
func (s *subscriptionTable) sessionsFor(uri string) []string {
	all := make(map[string]bool)
	for subscribed, sessions := range s.byURI {
		if catalog.SubscriptionCovers(subscribed, uri) {
			maps.Copy(all, sessions)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// acceptedBySession returns the accepted URIs of each session.
func (s *subscriptionTable) acceptedBySession() map[string][]string {
	all := make(map[string][]string)
	for _, uri := range s.uris() {
		for session, accepted := range s.byURI[uri] {
			if accepted {
				all[session] = append(all[session], uri)
			}
		}
	}
	return all
}
