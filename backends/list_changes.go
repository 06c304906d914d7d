package backends

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// listChanged requests a refresh of the lists that a notification announces as changed. One refresh
// serves any number of changes. listChanged reports false if the notification is of another kind.
func (b *Backend) listChanged(notification string) bool {
	return b.requestRefresh(notification, func(k catalog.Kind) { b.announced[k] = true })
}

// requestRefresh requests a refresh of the lists that a notification names, and reports whether the
// notification names any. It calls note with the kind of each of these lists, with b.mu held. If a
// list turns out to be the same, clients are notified only if note has set announced, as in
// listChanged, or notifyAfterRefresh.
func (b *Backend) requestRefresh(notification string, note func(catalog.Kind)) bool {
	names := func(k catalog.Kind) bool { return k.ChangedNotification() == notification }
	return b.refreshKinds(names, note)
}

// refreshAll requests a refresh of every list, and treats every list as announced.
func (b *Backend) refreshAll() {
	b.refreshKinds(func(catalog.Kind) bool { return true },
		func(k catalog.Kind) { b.announced[k] = true })
}

// refreshTools requests a refresh of the list of tools.
func (b *Backend) refreshTools() {
	b.requestRefresh(catalog.Tools.ChangedNotification(), func(catalog.Kind) {})
}

// refreshKinds requests one refresh of the lists of the kinds for which the function wanted returns
// true, and reports whether there are any. It starts the shared connection if that is stopped. It
// calls both functions with b.mu held.
func (b *Backend) refreshKinds(wanted func(catalog.Kind) bool, note func(catalog.Kind)) bool {
	some := false
	b.mu.Lock()
	for k := range catalog.Kind(catalog.NumKinds) {
		if wanted(k) {
			b.stale[k], some = true, true
			note(k)
		}
	}
	b.mu.Unlock()
	if some {
		select {
		case b.refreshSignal <- struct{}{}:
		default:
		}
		b.shared.wake() // to read them
	}
	return some
}

// takeStale returns the lists that became stale since the last call of takeStale. The caller must
// read these lists and then call notify, which notifies each client whose per-session connection
// has announced a change.
func (b *Backend) takeStale() (which [catalog.NumKinds]bool, notify func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	which, b.stale = b.stale, which
	type change struct{ session, notification string }
	announced := make(map[change]bool)
	for session, bc := range b.perSession {
		for k, hasChanged := range bc.notifyAfterRefresh {
			if hasChanged {
				announced[change{session, catalog.Kind(k).ChangedNotification()}] = true
			}
		}
		clear(bc.notifyAfterRefresh[:])
	}
	return which, func() {
		for c := range announced {
			b.set.clientSide().HandleNotification(b.cfg.Name,
				contract.Attribution{Session: c.session},
				wire.NewNotification(c.notification, nil))
		}
	}
}
