package protocol

import "slices"

// IsModernRevision reports whether a date that comes without _meta, for example in a header,
// belongs to the modern generation. Unknown dates after the first modern revision do, and so does
// any text that sorts after that revision. "" belongs to no generation.
func IsModernRevision(date string) bool {
	return slices.ContainsFunc(revisions, func(t Features) bool { return t.Modern && date >= t.Date })
}
