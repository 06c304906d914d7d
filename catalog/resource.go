package catalog

import (
	"strings"

	"mcpgateway/internal/wire"
)

// claim lists each of a backend's entries under its own URI, unless another
// backend has it.
func (n *namer) claim(entries []Entry) {
	for i := range entries {
		if e := &entries[i]; e.Exposed == "" && !n.take(e, e.Item.Original) {
			e.ConflictBackend = n.holder(e.Item.Original)
		}
	}
}

// maxTried bounds the effort that one backend's templates make for one URI: the
// bytes of both, summed up over those that it begins like. What is beyond is not
// tried.
const maxTried = 128 << 10

// ResolveResource returns the route by which a resource is read: to the backend that
// lists it, else to the first that has a template for it, else to the only one
// that has resources at all. Nothing is guessed: if several have, there is none.
//
// The URI goes to the backend unchanged. One of more than 8 KiB is found by no
// template.
func (s *Snapshot) ResolveResource(uri string) (Route, bool) {
	if e := s.lists[Resources].routes[uri]; e != nil {
		return e.route(), true
	}
	if route, ok := s.lists[Resources].keptRoute(uri); ok {
		return route, true
	}
	backend := s.matching(uri)
	if backend == "" {
		backend = s.reader()
	}
	if backend == "" {
		return Route{}, false
	}
	return Route{Backend: backend, Original: uri, OriginalJSON: wire.Quote(uri)}, true
}

// matching returns the first backend that has a template for the URI, "" if
// none has.
func (s *Snapshot) matching(uri string) string {
	if len(uri) > maxURI {
		return ""
	}
	var few [32]int
	tried := few[:] // bytes, by the place of the backend
	if len(s.listings) > len(few) {
		tried = make([]int, len(s.listings))
	}
	for _, e := range s.lists[Templates].order {
		p := e.Item.template
		if p == nil || !p.fits(uri) {
			continue
		}
		if tried[e.place] += len(uri) + len(p.template); tried[e.place] > maxTried {
			continue
		}
		if p.match(uri) {
			return e.Backend
		}
	}
	return ""
}

// onlyReader returns the only backend that has resources, because it says so or
// lists some; "" if there are several or none.
func onlyReader(listings []Listing) string {
	only := ""
	for i := range listings {
		l := &listings[i]
		if !l.has("resources") && len(l.Items[Resources])+len(l.Items[Templates]) == 0 {
			continue
		}
		if only != "" {
			return ""
		}
		only = l.Backend
	}
	return only
}

// SubscriptionCovers reports whether who is subscribed to a resource is to hear of an update of uri:
// it is that resource, or "a sub-resource of the one that the client actually subscribed
// to" (resources, notifications/resources/updated), which begins with its URI and goes on
// where a part of it ends.
func SubscriptionCovers(subscribed, uri string) bool {
	rest, ok := strings.CutPrefix(uri, subscribed)
	return ok && (rest == "" || strings.HasSuffix(subscribed, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}
