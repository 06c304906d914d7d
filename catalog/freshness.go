package catalog

import "time"

// Freshness returns how long the merged list of a kind is fresh, and whether it is private to the
// client that requested it. The ttl is the shortest one of all backends that have, or may have,
// entries of the kind; 0 means unspecified. The list is private if the list of one of these
// backends is. A backend that declared that it has no such entries does not count.
func (s *Snapshot) Freshness(k Kind) (ttl time.Duration, private bool) {
	first := true
	for i := range s.listings {
		l := &s.listings[i]
		if !l.mayHave(k) {
			continue
		}
		if first || l.TTL[k] < ttl {
			ttl = l.TTL[k]
		}
		first = false
		private = private || l.Private[k]
	}
	return ttl, private
}

// mayHave reports whether the backend has, or may have, entries of a kind.
func (l *Listing) mayHave(k Kind) bool {
	return l.Capabilities == nil || len(l.Items[k]) > 0 || l.hasCapability(kinds[k].capability)
}

// Announcements returns how often the backends have announced a change of their lists of a kind.
// If the number differs between two snapshots, there was an announcement in between.
func (s *Snapshot) Announcements(k Kind) (n int) {
	for i := range s.listings {
		n += s.listings[i].Announcements[k]
	}
	return n
}
