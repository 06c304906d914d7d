package protocol

import "slices"

// IsModernRevision reports whether a date that stands where no _meta is, such as in a
// header, is of the stateless era: it is one of its revisions, or comes after the first
// of them, as that of a revision does which is not known yet. So does what is no date
// and sorts behind all of them. "" is of no era.
func IsModernRevision(date string) bool {
	return slices.ContainsFunc(table, func(t Features) bool { return t.Modern && date >= t.Date })
}
