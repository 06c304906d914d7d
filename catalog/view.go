package catalog

import "strings"

// A View is what can be said of the catalog at one moment. It is immutable, and
// followed by another when anything in it changes.
type View struct {
	*Snapshot
	// Settled says that there is no more point in making a client wait for its
	// first list: every backend has answered, now or at an earlier time, or has
	// failed, or has had its time.
	Settled bool
	// Complete says that every backend has answered, now or at an earlier time,
	// or has failed: a name that is not in the catalog means nothing.
	Complete bool
	// Missing are the backends of which that cannot be said, each with the
	// separator behind it.
	Missing []string
	// Changed is closed when there is a newer View.
	Changed <-chan struct{}
}

// HasSeveral reports whether there is more than one backend, whatever is known of them.
func (s *Snapshot) HasSeveral() bool { return len(s.listings) > 1 }

// MayCome reports whether name, which is not in the catalog, is one by which a
// tool or a prompt of a missing backend could be called.
func (v *View) MayCome(name string) bool {
	for _, prefix := range v.Missing {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
