package backends

import (
	"time"
)

// shortestTTL is how long a list is kept, at least, that says that it is good for a while
// only.
const shortestTTL = 10 * time.Second

// setTTLLocked takes what a list says of how long, and for whom, it is good, and reports
// whether that is news. It is called with b.mu held. One of the session era says
// neither, and one of which something is hidden is not for everybody.
func (b *Backend) setTTLLocked(r *listRead, s serverInfo) (news bool) {
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
	news = l.TTL[r.kind] != ttl || l.Private[r.kind] != private
	l.TTL[r.kind], l.Private[r.kind] = ttl, private
	return news
}

// nextExpiry returns what tells when the next list is good no longer, nil if none will be.
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

// markExpired counts those lists as changed that are good no longer.
func (b *Backend) markExpired() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, t := range b.expiresAt {
		if !t.IsZero() && !time.Now().Before(t) {
			b.stale[k] = true
		}
	}
}
