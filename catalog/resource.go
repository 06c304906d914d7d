package catalog

import (
	"cmp"
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// claimURIs exposes each entry of a backend under its URI, unless another backend has the URI.
func (n *namer) claimURIs(entries []Entry) {
	for i := range entries {
		if e := &entries[i]; e.Exposed == "" && !n.claim(e, e.Item.Original) {
			e.ConflictBackend = n.backendOfKey(e.Item.Original)
		}
	}
}

// maxMatchEffort bounds the effort of matching one URI against the templates of one backend: the
// sum, over the templates whose literal prefix matches, of the lengths of template and URI, in
// bytes. Templates beyond this bound are not tried.
const maxMatchEffort = 128 << 10

// ResolveResource returns the route for reading a resource. The target is the backend that lists
// the resource or for which its URI is reserved, else the first backend with a matching template,
// else the only backend with resources. If none of these exists, ok is false: the gateway does not
// choose among several backends.
//
// The URI is sent to the backend unchanged. Templates do not match URIs of more than 8 KiB.
func (s *Snapshot) ResolveResource(uri string) (Route, bool) {
	if e := s.lists[Resources].routes[uri]; e != nil {
		return e.route(), true
	}
	if route, ok := s.lists[Resources].reservedRoute(uri); ok {
		return route, true
	}
	backend := s.lists[Templates].templates.match(uri, len(s.listings))
	if backend == "" {
		backend = s.onlyResourceBackend()
	}
	if backend == "" {
		return Route{}, false
	}
	return Route{Backend: backend, Original: uri, OriginalJSON: wire.Quote(uri)}, true
}

// A rankedTemplate is a template with the index of its backend among the listings.
type rankedTemplate struct {
	*Entry
	backendIndex int
}

// rankedTemplates are all templates, in the order in which they are tried for a URI. They are
// immutable.
type rankedTemplates []rankedTemplate

// rankTemplates returns first the templates that were ranked before, in their order, then new ones,
// so that a new template does not take a URI away from its backend. If before is nil, the order is
// that of the listings. ends contains the end of each listing in entries.
func rankTemplates(entries []Entry, ends []int, before rankedTemplates) rankedTemplates {
	all := make(rankedTemplates, 0, len(entries))
	for index, end := range ends {
		for i := len(all); i < end; i++ {
			all = append(all, rankedTemplate{&entries[i], index})
		}
	}
	if len(before) == 0 {
		return all
	}
	ranks := make(map[entryRef]int, len(before))
	for i, e := range before {
		ranks[entryRef{e.Backend, e.Item.Original}] = i
	}
	rank := func(e rankedTemplate) int {
		if i, known := ranks[entryRef{e.Backend, e.Item.Original}]; known {
			return i
		}
		return len(ranks)
	}
	slices.SortStableFunc(all, func(a, b rankedTemplate) int {
		return cmp.Compare(rank(a), rank(b))
	})
	return all
}

// match returns the first backend with a template that matches the URI, "" if there is none.
// backends is the number of all backends.
func (all rankedTemplates) match(uri string, backends int) string {
	if len(uri) > maxURI {
		return ""
	}
	var few [32]int
	tried := few[:] // bytes, by the index of the backend
	if backends > len(few) {
		tried = make([]int, backends)
	}
	for _, e := range all {
		p := e.Item.uriPattern
		if p == nil || !p.hasPrefix(uri) {
			continue
		}
		tried[e.backendIndex] += len(uri) + len(p.template)
		if tried[e.backendIndex] > maxMatchEffort {
			continue
		}
		if p.matches(uri) {
			return e.Backend
		}
	}
	return ""
}

// findOnlyResourceBackend returns the only backend that declares or lists resources, "" if there
// are several or none.
func findOnlyResourceBackend(listings []Listing) string {
	only := ""
	for i := range listings {
		l := &listings[i]
		if !l.hasCapability("resources") && len(l.Items[Resources])+len(l.Items[Templates]) == 0 {
			continue
		}
		if only != "" {
			return ""
		}
		only = l.Backend
	}
	return only
}

// SubscriptionCovers reports whether a subscription covers an update: subscribed is the URI of the
// subscription, uri the URI of the update. This is the case if the two are equal, or if uri is "a
// sub-resource of the one that the client actually subscribed to" (resources,
// notifications/resources/updated): a URI that extends the subscribed URI at a separator.
func SubscriptionCovers(subscribed, uri string) bool {
	rest, ok := strings.CutPrefix(uri, subscribed)
	return ok && (rest == "" || strings.HasSuffix(subscribed, "/") ||
		strings.ContainsRune("/?#", rune(rest[0])))
}
