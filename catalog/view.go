package catalog

import "strings"

// A View is the state of the catalog at one moment. It is immutable; any change leads to a new
// View.
type View struct {
	*Snapshot
	// Settled is true if clients no longer have to wait for their first list: every backend has
	// responded, now or earlier, or has failed, or has exceeded the time to wait.
	Settled bool
	// Complete is true if every backend has responded, now or earlier, or has failed.
	// Names that are not in the catalog are then unknown.
	Complete bool
	// MissingPrefixes contains the backends for which Complete is not true yet, each followed by
	// the separator.
	MissingPrefixes []string
	// Changed is closed when there is a newer View.
	Changed <-chan struct{}
}

// HasSeveralBackends reports whether there is more than one backend, listed or not.
func (s *Snapshot) HasSeveralBackends() bool { return len(s.listings) > 1 }

// MayResolveLater reports whether name, which is not in the catalog, could be the name of a tool
// or prompt of a backend in MissingPrefixes.
func (v *View) MayResolveLater(name string) bool {
	for _, prefix := range v.MissingPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
