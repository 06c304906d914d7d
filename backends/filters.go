package backends

import (
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
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

// lists reports whether an entry of one of the backend's lists is permitted.
func (b *Backend) lists(k catalog.Kind, own string) bool {
	f := b.filterOf(k)
	if k == catalog.Resources || k == catalog.Templates {
		return f.PermitsURI(own)
	}
	return f.Permits(own)
}

// permits reports whether the filters in force permit a request. It is asked immediately before
// the request is written. Without a filter it looks at nothing and allocates nothing. A request
// that ends something, such as resources/unsubscribe, and one about a task are always permitted:
// the call that they belong to was.
func (b *Backend) permits(m wire.Message, c *peer.Call) bool {
	f := b.filters.Load()
	if f.Tools.IsZero() && f.Prompts.IsZero() && f.Resources.IsZero() {
		return true
	}
	switch mcp.MCPMethod(m.Method()) {
	case mcp.MethodToolsCall:
		return f.Tools.Permits(named(m, c))
	case mcp.MethodPromptsGet:
		return f.Prompts.Permits(named(m, c))
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe:
		return f.Resources.PermitsURI(subject(m))
	case mcp.MethodCompletionComplete:
		return permitsCompletion(f, m)
	}
	return true
}

// Permits reports whether the configuration in force permits that a request goes to a backend: the
// backend is in it, and its filters permit the request.
func (s *Set) Permits(backend string, m wire.Message, c *peer.Call) bool {
	b, ok := s.now().byName[backend]
	return ok && b.permits(m, c)
}

// SharesProcess reports whether a session uses a process of a backend that other clients use, too.
func (s *Set) SharesProcess(backend, session string) bool {
	b := s.now().byName[backend]
	return b != nil && !s.SingleClient && !b.isApart(session)
}

// DeniedBy returns the first backend that lists a tool, a prompt or a resource under a name, its own or
// that with the backend's name in front, and whose filters deny it; "" if there is none. It is for
// operators: clients are not told whether a name is denied or does not exist.
func (s *Set) DeniedBy(k catalog.Kind, name string) (backend string) {
	for _, b := range s.now().all {
		if s.Denies(b.cfg.Name, k, name) {
			return b.cfg.Name
		}
	}
	return ""
}

// Denies reports the same of one backend.
func (s *Set) Denies(backend string, k catalog.Kind, name string) bool {
	m := s.now()
	b := m.byName[backend]
	if b == nil {
		return false
	}
	own := strings.TrimPrefix(name, backend+m.catalog.Separator)
	return b.denies(k, name) || own != name && b.denies(k, own)
}

// denies reports whether the backend lists an entry and its filters deny it.
func (b *Backend) denies(k catalog.Kind, own string) bool {
	if b.filterOf(k).IsZero() || b.lists(k, own) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.items[k], func(i catalog.Item) bool { return i.Original == own })
}

// named returns the backend's own name of the tool or prompt that a request asks for.
func named(m wire.Message, c *peer.Call) string {
	switch {
	case c.RemoteName != "":
		return c.RemoteName
	case c.Name != nil:
		return wire.Unquote(c.Name)
	}
	return m.Name()
}

// permitted returns the URIs among some that the filters in force permit.
func (b *Backend) permitted(uris []string) []string {
	if b.filters.Load().Resources.IsZero() {
		return uris
	}
	return slices.DeleteFunc(slices.Clone(uris), func(uri string) bool { return !b.lists(catalog.Resources, uri) })
}

// refilter puts the filters of a change into force for the backends at hand.
func (s *Set) refilter(m *members, next []config.Backend) {
	some := false
	for _, c := range next {
		if b := m.byName[c.Name]; b != nil && b.refilter(c.Filters()) {
			some = true
		}
	}
	if some {
		s.publish()
	}
}

// refilter puts other filters into force, and has what they permit listed. It reports false if
// the filters are the same.
func (b *Backend) refilter(f config.Filters) bool {
	was := b.filters.Load()
	if slices.EqualFunc(was.All(), f.All(), config.Filter.Equal) {
		return false
	}
	b.mu.Lock()
	b.filters.Store(&f)
	for k := range catalog.Kind(catalog.NumKinds) {
		b.setItems(k, b.items[k])
		b.listing.Private[k] = !b.public[k] || !b.filterOf(k).IsZero()
	}
	unmatched := b.compareLocked()
	lines := []*line{b.shared}
	for _, l := range b.own {
		lines = append(lines, l)
	}
	b.mu.Unlock()
	b.sayUnmatched(unmatched)
	for _, l := range lines {
		l.resubscribe(was.Resources, f.Resources)
	}
	return true
}

// resubscribe tells the server of subscriptions that the filter was forbids and the filter is
// permits: it may have been started in between.
func (l *line) resubscribe(was, is config.Filter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, uri := range l.subs.agreedTo() {
		if !was.PermitsURI(uri) && is.PermitsURI(uri) {
			l.adopted = append(l.adopted, uri)
		}
	}
	l.tellAdoptedLocked()
	l.pokeListening()
}

// setItems takes all entries of a kind that the backend lists, and has those be listed that its
// filters permit. The caller holds b.mu.
func (b *Backend) setItems(k catalog.Kind, items []catalog.Item) {
	b.items[k] = items
	permitted := items
	if !b.filterOf(k).IsZero() {
		permitted = slices.DeleteFunc(slices.Clone(items), func(i catalog.Item) bool { return !b.lists(k, i.Original) })
	}
	if k == catalog.Tools {
		b.headers = headersIn(items)
	}
	b.listing.Items[k] = permitted
	b.status.Counts[k] = len(permitted)
}

// compareLocked notes which globs of the filters match nothing that the backend lists. It returns
// a text for each kind of which that is news, for sayUnmatched. A list that was never read says
// nothing. Neither do resources if there are templates: a glob may be meant for what these expand
// to.
func (b *Backend) compareLocked() (news []string) {
	known := b.status.Unmatched
	b.status.Unmatched = nil
	f := b.filters.Load()
	for _, one := range []struct {
		kind   catalog.Kind
		key    string
		filter config.Filter
	}{{catalog.Tools, "tools", f.Tools}, {catalog.Prompts, "prompts", f.Prompts}, {catalog.Resources, "resources", f.Resources}} {
		if b.raw[one.kind] == nil || one.kind == catalog.Resources && len(b.items[catalog.Templates]) > 0 {
			continue
		}
		var names []string
		for _, item := range b.items[one.kind] {
			names = append(names, item.Original)
		}
		globs := one.filter.Unmatched(one.key, names)
		if slices.ContainsFunc(globs, func(glob string) bool { return !slices.Contains(known, glob) }) {
			news = append(news, "no "+one.kind.String()+" of the backend's is meant by "+strings.Join(globs, ", "))
		}
		b.status.Unmatched = append(b.status.Unmatched, globs...)
	}
	return news
}

func (b *Backend) sayUnmatched(news []string) {
	for _, text := range news {
		b.says.Warn(text)
	}
}
