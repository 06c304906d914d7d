package catalog

import "mcpgateway/wire"

// claim lists each of a backend's entries under its own URI, unless an earlier
// backend has it.
func (n *namer) claim(entries []Entry) {
	for i := range entries {
		n.take(&entries[i], entries[i].Item.Own)
	}
}

// Resource returns the route by which a resource is read: to the backend that
// lists it, else to the first that has a template for it, else to the only one
// that has resources at all. Nothing is guessed: with several such backends there
// is no route.
func (s *Snapshot) Resource(uri string) (Route, bool) {
	if r, ok := s.lists[Resources].routes[uri]; ok {
		return r, true
	}
	backend := s.matching(uri)
	if backend == "" {
		backend = s.onlyReader()
	}
	if backend == "" {
		return Route{}, false
	}
	return Route{Backend: backend, Own: uri, OwnJSON: wire.Quote(uri)}, true
}

// matching returns the first backend that has a template for the URI, "" if
// none has.
func (s *Snapshot) matching(uri string) string {
	if len(uri) > maxURI {
		return ""
	}
	for i := range s.lists[Templates].entries {
		e := &s.lists[Templates].entries[i]
		if e.Item.template != nil && e.Item.template.match(uri) {
			return e.Backend
		}
	}
	return ""
}

// onlyReader returns the only backend that has resources, "" if there are
// several or none.
func (s *Snapshot) onlyReader() string {
	only := ""
	for i := range s.listings {
		l := &s.listings[i]
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
