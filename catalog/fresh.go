package catalog

import "time"

// Freshness returns for how long the merged list of a kind is good, and whether it is
// for nobody but who asked for it: the shortest time of all backends that have, or
// may come to have, entries of the kind, and private if the list of one of them is.
// 0 is no time: nobody has said. A backend that has declared that it has none of the
// kind does not count.
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

// mayHave reports whether the backend has, or may come to have, entries of a kind.
func (l *Listing) mayHave(k Kind) bool {
	return l.Capabilities == nil || len(l.Items[k]) > 0 || l.has(kinds[k].capability)
}

// Announcements counts how often any backend has said that its list of a kind has changed. A
// snapshot of which that is another number follows one of which it is not.
func (s *Snapshot) Announcements(k Kind) (n int) {
	for i := range s.listings {
		n += s.listings[i].Announcements[k]
	}
	return n
}
