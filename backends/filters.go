package backends

import (
	"slices"
	"strings"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// filterOf returns the filter of one of the backend's lists.
func (b *Backend) filterOf(k catalog.Kind) config.Filter {
	switch f := b.filters.Load(); k {
	case catalog.Tools:
		return f.Tools
	case catalog.Prompts:
		return f.Prompts
	default:
		return f.Resources
	}
}

// permitsEntry reports whether the filters permit an entry of a list.
func (b *Backend) permitsEntry(k catalog.Kind, own string) bool {
	f := b.filterOf(k)
	if k == catalog.Resources || k == catalog.Templates {
		return f.PermitsURI(own)
	}
	return f.Permits(own)
}

// permits reports whether the filters in force permit a request. It is called immediately before
// the request is written. Without filters it does not parse the request, and allocates nothing.
// Requests that name no tool, prompt or resource are permitted. A request that ends something, such
// as resources/unsubscribe, and a request about a task are also permitted, because the filters
// permitted the request that created the subscription or the task.
func (b *Backend) permits(r *contract.BackendRequest) bool {
	f := b.filters.Load()
	if f.Tools.IsZero() && f.Prompts.IsZero() && f.Resources.IsZero() {
		return true
	}
	switch m := r.Message; m.Method() {
	case protocol.MethodToolsCall:
		return f.Tools.Permits(ownName(r))
	case protocol.MethodPromptsGet:
		return f.Prompts.Permits(ownName(r))
	case protocol.MethodResourcesRead, protocol.MethodResourcesSubscribe:
		return f.Resources.PermitsURI(uriParam(m))
	case protocol.MethodCompletionComplete:
		return permitsCompletion(f, m)
	}
	return true
}

// Permits reports whether a request may be sent to a backend: the backend is in the current
// configuration, and its filters permit the request.
func (s *Set) Permits(backend string, r contract.BackendRequest) bool {
	b, ok := s.current().byName[backend]
	return ok && b.permits(&r)
}

// SharesProcess reports whether a session may share a process of a backend with other clients.
func (s *Set) SharesProcess(backend, session string) bool {
	b := s.current().byName[backend]
	return b != nil && !s.SingleClient && !b.needsSessionConn(session)
}

// DeniedBy returns the first backend that lists a tool, a prompt or a resource under a name, with
// or without the backend's prefix, and whose filters deny it; "" if there is none. The result is
// for operators only, because a client must not learn whether a name is denied or does not exist.
func (s *Set) DeniedBy(k catalog.Kind, name string) (backend string) {
	for _, b := range s.current().all {
		if s.Denies(b.cfg.Name, k, name) {
			return b.cfg.Name
		}
	}
	return ""
}

// Denies reports whether a backend lists an entry under a name, with or without the backend's
// prefix, and its filters deny it.
func (s *Set) Denies(backend string, k catalog.Kind, name string) bool {
	t := s.current()
	b := t.byName[backend]
	if b == nil {
		return false
	}
	own := strings.TrimPrefix(name, backend+t.catalog.Separator)
	return b.denies(k, name) || own != name && b.denies(k, own)
}

// denies reports whether the backend lists an entry and its filters deny it.
func (b *Backend) denies(k catalog.Kind, own string) bool {
	if b.filterOf(k).IsZero() || b.permitsEntry(k, own) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.items[k], func(i catalog.Item) bool { return i.Original == own })
}

// ownName returns the backend's own name of the tool or prompt in a request.
func ownName(r *contract.BackendRequest) string {
	switch {
	case r.Entry != "":
		return r.Entry
	case r.Name != nil:
		return wire.Unquote(r.Name)
	}
	return r.Message.Name()
}

// permittedURIs returns the URIs that the filters in force permit.
func (b *Backend) permittedURIs(uris []string) []string {
	if b.filters.Load().Resources.IsZero() {
		return uris
	}
	return slices.DeleteFunc(slices.Clone(uris),
		func(uri string) bool { return !b.permitsEntry(catalog.Resources, uri) })
}

// setFilters applies the filters of a change to the current backends, and publishes a View if any
// filter has changed.
func (s *Set) setFilters(t *backendTable, next []config.Backend) {
	some := false
	for _, c := range next {
		if b := t.byName[c.Name]; b != nil && b.setFilters(c.Filters()) {
			some = true
		}
	}
	if some {
		s.publish()
	}
}

// setFilters replaces the filters, updates the listing to the entries that the new filters permit,
// and restores the subscriptions that are permitted again. It reports false if the filters are
// unchanged.
func (b *Backend) setFilters(f config.Filters) bool {
	previous := b.filters.Load()
	if slices.EqualFunc(previous.All(), f.All(), config.Filter.Equal) {
		return false
	}
	b.mu.Lock()
	b.filters.Store(&f)
	for k := range catalog.Kind(catalog.NumKinds) {
		b.setItemsLocked(k, b.items[k])
		b.listing.Private[k] = !b.public[k] || !b.filterOf(k).IsZero()
	}
	unmatched := b.updateUnmatchedLocked()
	conns := []*backendConn{b.shared}
	for _, bc := range b.perSession {
		conns = append(conns, bc)
	}
	b.mu.Unlock()
	b.logUnmatched(unmatched)
	for _, bc := range conns {
		bc.resubscribePermitted(previous.Resources, f.Resources)
	}
	return true
}

// resubscribePermitted subscribes the server to the subscribed URIs that the new filter (after)
// permits and the previous filter (before) did not permit. A server that was started under the
// previous filter is not subscribed to them.
func (bc *backendConn) resubscribePermitted(before, after config.Filter) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, uri := range bc.subs.acceptedURIs() {
		if !before.PermitsURI(uri) && after.PermitsURI(uri) {
			bc.resubscribeURIs = append(bc.resubscribeURIs, uri)
		}
	}
	bc.resubscribeLocked()
	bc.signalReopen()
}

// setItemsLocked stores all entries of a kind that the backend lists, and puts those that its
// filters permit into the field listing.
func (b *Backend) setItemsLocked(k catalog.Kind, items []catalog.Item) {
	b.items[k] = items
	permitted := items
	if !b.filterOf(k).IsZero() {
		permitted = slices.DeleteFunc(slices.Clone(items),
			func(i catalog.Item) bool { return !b.permitsEntry(k, i.Original) })
	}
	if k == catalog.Tools {
		b.headerSchemas = headerSchemas(items)
	}
	b.listing.Items[k] = permitted
	b.status.Counts[k] = len(permitted)
}

// updateUnmatchedLocked notes which globs of the filters match nothing that the backend lists. It
// returns a text for each kind with a new unmatched glob, for logUnmatched. A list that was never
// read is skipped. Resources are also skipped if there are templates, because a glob may be meant
// for URIs that the templates expand to.
func (b *Backend) updateUnmatchedLocked() (texts []string) {
	known := b.status.Unmatched
	b.status.Unmatched = nil
	f := b.filters.Load()
	for _, list := range []struct {
		kind   catalog.Kind
		key    string
		filter config.Filter
	}{{catalog.Tools, "tools", f.Tools}, {catalog.Prompts, "prompts", f.Prompts},
		{catalog.Resources, "resources", f.Resources}} {
		if b.raw[list.kind] == nil ||
			list.kind == catalog.Resources && len(b.items[catalog.Templates]) > 0 {
			continue
		}
		var names []string
		for _, item := range b.items[list.kind] {
			names = append(names, item.Original)
		}
		globs := list.filter.Unmatched(list.key, names)
		if slices.ContainsFunc(globs,
			func(glob string) bool { return !slices.Contains(known, glob) }) {
			texts = append(texts, strings.Join(globs, ", "))
		}
		b.status.Unmatched = append(b.status.Unmatched, globs...)
	}
	return texts
}

func (b *Backend) logUnmatched(texts []string) {
	for _, text := range texts {
		b.outputLog.Warn("filter globs without a match", "text", text)
	}
}
