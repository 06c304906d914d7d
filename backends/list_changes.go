package backends

import (
	"time"

	"mcpgateway/catalog"
)

// listChanged requests a refresh of the lists that a notification of the backend announces as
// changed, and reports whether it announces any. One refresh serves any number of changes. If the
// notification arrived over the session's own connection, the session is notified after the
// refresh; "" = over the shared connection: clients are notified of the new snapshot.
func (l *lists) listChanged(notification, session string) bool {
	return l.request(func(k catalog.Kind) bool {
		if k.ChangedNotification() != notification {
			return false
		}
		switch {
		case session == "":
			l.list[k].announced = true
		case l.sessions.isOpen(session): // after this check, forgetSession removes the entry
			if l.announcedTo == nil {
				l.announcedTo = make(map[string]*[catalog.NumKinds]bool)
			}
			if l.announcedTo[session] == nil {
				l.announcedTo[session] = new([catalog.NumKinds]bool)
			}
			l.announcedTo[session][k] = true
		}
		return true
	})
}

// refreshAll requests a refresh of every list, and treats every list as announced.
func (l *lists) refreshAll() {
	l.request(func(k catalog.Kind) bool {
		l.list[k].announced = true
		return true
	})
}

// refreshTools requests a refresh of the list of tools. If the list turns out to be the same,
// clients are not notified.
func (l *lists) refreshTools() {
	l.request(func(k catalog.Kind) bool { return k == catalog.Tools })
}

// request requests one refresh of the lists of the kinds for which the function wanted returns
// true, and reports whether there are any. It starts the shared connection if that is stopped. It
// calls wanted with l.mu held.
func (l *lists) request(wanted func(catalog.Kind) bool) bool {
	some := false
	l.mu.Lock()
	for k := range catalog.Kind(catalog.NumKinds) {
		if wanted(k) {
			l.list[k].stale, some = true, true
		}
	}
	l.mu.Unlock()
	if some {
		signal(l.signal)
		l.wake()
	}
	return some
}

// takeStale returns the lists that became stale since the last call of takeStale, and the lists of
// which each session must be notified after the caller has read them.
func (l *lists) takeStale() (which [catalog.NumKinds]bool,
	announcedTo map[string]*[catalog.NumKinds]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.list {
		which[k], l.list[k].stale = l.list[k].stale, false
	}
	announcedTo, l.announcedTo = l.announcedTo, nil
	return which, announcedTo
}

// forgetSession is called when a session is over.
func (l *lists) forgetSession(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.announcedTo, session)
}

// shortestTTL is the shortest time for which a list with a TTL is kept.
const shortestTTL = 10 * time.Second

// setTTLLocked stores the TTL of a list and whether the list is public, and reports whether either
// has changed. Lists of legacy servers have no TTL and are private, and a filtered list is never
// public. If the list could not be read, setTTLLocked only removes its expiry, and reports false.
func (l *lists) setTTLLocked(r *listRead, s serverInfo) (changed bool) {
	one := &l.list[r.kind]
	one.expiresAt = time.Time{}
	if r.err != nil {
		return false
	}
	ttl, private := r.ttl, !r.public
	if !s.modern {
		ttl, private = 0, true
	}
	one.public = !private
	private = private || l.mayHideLocked(r.kind)
	if ttl > 0 {
		one.expiresAt = time.Now().Add(max(ttl, shortestTTL))
	}
	changed = l.listing.TTL[r.kind] != ttl || l.listing.Private[r.kind] != private
	l.listing.TTL[r.kind], l.listing.Private[r.kind] = ttl, private
	return changed
}

// nextExpiry returns a channel that fires when the next list expires, nil if no list expires.
func (l *lists) nextExpiry() <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Time
	for k := range l.list {
		if t := l.list[k].expiresAt; !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// markExpired marks expired lists as stale. They have no expiry until they are read, which may be
// much later: while the server is unreachable, nothing is read.
func (l *lists) markExpired() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.list {
		if t := l.list[k].expiresAt; !t.IsZero() && !time.Now().Before(t) {
			l.list[k].stale, l.list[k].expiresAt = true, time.Time{}
		}
	}
}
