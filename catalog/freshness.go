package catalog

import "time"

// Freshness returns the time to live of the merged list of a kind, and reports whether the list is
// private to the client that requested it. Only backends that have, or may have, entries of the
// kind count. ttl is the shortest time to live of their lists. It is 0, which means unspecified, if
// the time to live of one list is unspecified or if there is no such backend. The list is private
// if one of these backends has a private list.
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

// mayHave reports whether the backend has entries of a kind, or may have some because it declares
// the capability or its capabilities are unknown.
func (l *Listing) mayHave(k Kind) bool {
	return l.Capabilities == nil || len(l.Items[k]) > 0 || l.hasCapability(kinds[k].capability)
}

// Announcements returns how often lists of a kind were read again because their backends had sent
// list_changed. If the number differs between two snapshots, that happened in between, or a backend
// was replaced or removed.
func (s *Snapshot) Announcements(k Kind) (n int) {
	for i := range s.listings {
		n += s.listings[i].Announcements[k]
	}
	return n
}
