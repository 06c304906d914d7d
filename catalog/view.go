package catalog

import "strings"

// A View is the state of the catalog at one moment. It is immutable; each change creates a new
// View.
type View struct {
	*Snapshot
	// Settled is true if clients no longer have to wait for their first list: every backend has
	// settled (it has listed its catalog, now or in an earlier run, or has failed once), or the
	// time to wait for that is over.
	Settled bool
	// Complete is true if every backend has settled. No backend has a name that is missing in a
	// complete catalog.
	Complete bool
	// MissingPrefixes contains the prefixes (name and separator) of the backends that have not
	// settled.
	MissingPrefixes []string
	// Private is true if other clients may have another view: what is derived from it must not be
	// shared between clients.
	Private bool
	// Changed is closed when there is a newer View.
	Changed <-chan struct{}
}

// MayResolveLater reports whether name, which is missing in the catalog, could be a tool or prompt
// of a backend whose prefix is in MissingPrefixes.
func (v *View) MayResolveLater(name string) bool {
	for _, prefix := range v.MissingPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
