package backends

import (
	"time"
)

// shortestTTL is the shortest time for which a list with a TTL is kept.
const shortestTTL = 10 * time.Second

// setTTLLocked stores the TTL of a list and whether the list is public, and reports whether either
// has changed. Lists of legacy servers have no TTL and are private, and a filtered list is never
// public. If the list could not be read, setTTLLocked only removes its expiry, and reports false.
func (b *Backend) setTTLLocked(r *listRead, s serverInfo) (changed bool) {
	b.expiresAt[r.kind] = time.Time{}
	if r.err != nil {
		return false
	}
	ttl, private := r.ttl, !r.public
	if !s.modern {
		ttl, private = 0, true
	}
	b.public[r.kind] = !private
	private = private || !b.filterOf(r.kind).IsZero()
	if ttl > 0 {
		b.expiresAt[r.kind] = time.Now().Add(max(ttl, shortestTTL))
	}
	l := &b.listing
	changed = l.TTL[r.kind] != ttl || l.Private[r.kind] != private
	l.TTL[r.kind], l.Private[r.kind] = ttl, private
	return changed
}

// nextExpiry returns a channel that fires when the next list expires, nil if no list expires.
func (b *Backend) nextExpiry() <-chan time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, t := range b.expiresAt {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// markExpired marks expired lists as stale.
func (b *Backend) markExpired() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, t := range b.expiresAt {
		if !t.IsZero() && !time.Now().Before(t) {
			b.stale[k] = true
		}
	}
}
