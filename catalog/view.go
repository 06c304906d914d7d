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
	// MissingPrefixes are the backends of which that cannot be said, each with the
	// separator behind it.
	MissingPrefixes []string
	// Changed is closed when there is a newer View.
	Changed <-chan struct{}
}

// HasSeveralBackends reports whether there is more than one backend, whatever is known of them.
func (s *Snapshot) HasSeveralBackends() bool { return len(s.listings) > 1 }

// MayResolveLater reports whether name, which is not in the catalog, is one by which a
// tool or a prompt of a missing backend could be called.
func (v *View) MayResolveLater(name string) bool {
	for _, prefix := range v.MissingPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
