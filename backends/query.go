package backends

import (
	"errors"
	"strings"

	"mcpgateway/catalog"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/principal"
)

// View returns the current view of the catalog for clients without profiles. With oauth.per:
// principal it has the lists of clients without authentication.
func (s *Set) View() *catalog.View { return s.publisher.latest.Load().view }

// ViewFor returns the current view of the catalog for a principal. It depends on the profiles of
// the principal, and on the principal itself if there are backends with oauth.per: principal.
func (s *Set) ViewFor(p *principal.Principal) *catalog.View {
	n := s.publisher.latest.Load()
	for i := 0; i < len(n.perPrincipal); i++ {
		l := n.perPrincipal[i]
		one, err := s.backend(l.b.cfg.Name, p)
		if err != nil {
			continue // calls get the error
		}
		if own := l.of(p.Key()); own.b != one || own.isUnused { // n is older than the use of one
			one.publish()
			n, i = s.publisher.latest.Load(), -1
		}
	}
	return s.publisher.viewFor(n, p)
}

// backend returns the backend that serves the clients of a principal: with oauth.per: principal,
// the instance of the principal, which is opened if there is none. If there is no backend of this
// name, the error says why.
func (s *Set) backend(name string, p *principal.Principal) (*Backend, error) {
	for {
		t := s.current()
		b := t.byName[name]
		switch {
		case b == nil:
			return nil, t.whyAbsent(name)
		case !b.instances.enabled():
			return b, nil
		case p.Key() == "":
			b.instances.useSelf()
			return b, nil
		}
		if one := b.instances.get(p.Key()); one != nil {
			return one, nil
		}
		if one, err := b.instances.open(p); one != nil || err != nil {
			return one, err
		}
	}
}

// backendOf returns the backend that serves a session; see the method backend. If the backend has
// instances, the session must be open: without its principal, the request could get the access of
// another one.
func (s *Set) backendOf(name, session string) (*Backend, error) {
	if b := s.current().byName[name]; b == nil || !b.instances.enabled() {
		return s.backend(name, nil)
	}
	who, open := s.sessions.identity(session)
	if !open {
		return nil, notSent("%w", errSessionOver)
	}
	return s.backend(name, who)
}

// WhyUnavailable explains why an unknown tool name with a backend's prefix cannot be called: the
// backend has never listed its tools, or was removed, disabled or misconfigured. It returns "" and
// nil otherwise, and if the profiles of the principal do not permit the backend.
func (s *Set) WhyUnavailable(p *principal.Principal, name string) (backend string, err error) {
	t := s.current()
	for _, one := range t.catalog.ReservedBackends {
		if strings.HasPrefix(name, one+t.catalog.Separator) && len(one) > len(backend) &&
			s.IsPermitted(p, one) {
			backend = one // the longest prefix wins
		}
	}
	if backend == "" {
		return "", nil
	}
	b, err := s.backend(backend, p)
	if err != nil {
		return backend, err
	}
	if err = b.whyUnlisted(); err == nil {
		backend = ""
	}
	return backend, err
}

// IsPermitted reports whether the profiles of a principal permit a backend.
func (s *Set) IsPermitted(p *principal.Principal, backend string) bool {
	if p.ProfileKey() == "" {
		return true
	}
	a := s.publisher.audiences.of(p)
	if b := s.current().byName[backend]; b != nil {
		return a.uses(b)
	}
	return a.hasBackend(backend)
}

// Status returns the status of each backend, in configuration order. A backend that is not enabled
// has the state Disabled, and a backend with missing variables has the state Misconfigured.
func (s *Set) Status() []Status {
	t := s.current()
	all := make([]Status, 0, len(t.names))
	for _, name := range t.names {
		if b, ok := t.byName[name]; ok {
			all = append(all, statusOf(t, b))
		} else if t.misconfigured[name] != "" {
			all = append(all, Status{Name: name, State: Misconfigured,
				Err: errors.New(t.misconfigured[name]), Settled: true})
		} else if !t.stopped[name].IsZero() {
			all = append(all, Status{Name: name, State: StoppedByUser, Err: t.whyAbsent(name),
				Settled: true, History: History{Since: t.stopped[name]},
				Usage: usageOf(t, name)})
		} else {
			all = append(all, Status{Name: name, State: Disabled})
		}
	}
	return all
}

// StatusChanged returns a channel that is closed when the state of a backend or the table of the
// backends changes, also of a connection for a single session or principal. Changes of the lists
// close View.Changed. Calls close neither.
func (s *Set) StatusChanged() <-chan struct{} { return s.changes.changed() }

// Permits returns nil if a request may be sent to a backend: the backend is in the current
// configuration, its filters and the profiles of the request's session permit the request, and a
// tool that is called is approved. Otherwise it returns [contract.ErrForbidden] or a
// *[contract.NotApprovedError].
func (s *Set) Permits(backend string, r contract.BackendRequest) error {
	b, err := s.backendOf(backend, r.Session)
	if err != nil {
		return contract.ErrForbidden
	}
	return b.permits(&r)
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
	own := withoutPrefix(name, backend, t.catalog.Separator)
	for one := range b.instances.andSelf() {
		if one.lists.denies(k, name) || own != name && one.lists.denies(k, own) {
			return true
		}
	}
	return false
}

// Lock returns the content of the lock file in force. It must not be changed.
func (s *Set) Lock() *pins.Lock { return s.publisher.approved.lock.Load() }

// MovedNames returns the tool names that belong to another backend than in the lock file.
func (s *Set) MovedNames() []catalog.Move {
	return movesFrom(s.Lock(), s.View().Snapshot, s.current().pins)
}

// ListedTools returns the tools that a backend has listed in this run and its filters permit,
// whether or not they are approved. known is false if the backend has not listed its tools yet. Of
// a backend with oauth.per: principal, the result has the tools that it has listed for any
// principal.
func (s *Set) ListedTools(backend string) (tools []catalog.Item, known bool) {
	b := s.current().byName[backend]
	if b == nil {
		return nil, false
	}
	listed := make(map[string]bool)
	for one := range b.instances.andSelf() {
		items, fresh := one.lists.freshTools()
		known = known || fresh
		for _, item := range items {
			if !listed[item.Original] {
				tools, listed[item.Original] = append(tools, item), true
			}
		}
	}
	return tools, known
}

// ToolsListed returns a channel that receives a value when a backend has listed its tools, even if
// the list has not changed. There is one channel, for one receiver; values that it has not received
// yet are combined.
func (s *Set) ToolsListed() <-chan struct{} { return s.toolsListed }

// NotApproved returns the first backend that hides a tool of this name, with or without the
// backend's prefix, because the tool is not approved, and the error of a call of this tool. The
// error is nil if there is no such backend, or the profiles of the principal do not permit the
// tool.
func (s *Set) NotApproved(p *principal.Principal, name string) (backend string, err error) {
	t := s.current()
	for b := range t.running() {
		if !b.instances.serves(p.Key()) {
			continue
		}
		own := withoutPrefix(name, b.cfg.Name, t.catalog.Separator)
		for _, one := range []string{name, own} {
			err := b.lists.pins.whyHidden(one)
			if err != nil && s.permitsTool(p, b, one) {
				return b.cfg.Name, err
			}
		}
	}
	return "", nil
}

// permitsTool reports whether the profiles of a principal permit a tool of a backend.
func (s *Set) permitsTool(p *principal.Principal, b *Backend, own string) bool {
	return p.ProfileKey() == "" ||
		s.publisher.audiences.of(p).permitsEntry(b, catalog.Tools, own)
}

// withoutPrefix returns a name without the prefix of a backend.
func withoutPrefix(name, backend, separator string) string {
	return strings.TrimPrefix(name, backend+separator)
}
