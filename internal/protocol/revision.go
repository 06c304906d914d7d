// Package protocol contains the revisions of MCP as data, the names and codes of the specification,
// and the translation between revisions. [Features] contains the properties of a revision, so that
// other packages do not compare dates. Each translation is a pure function.
//
// There are two generations. In the legacy one a session begins with initialize (2024-11-05 to
// 2025-11-25). In the modern one (from 2026-07-28 on) there is no session: each request describes
// its client in _meta, see [ClientMeta].
//
// Messages stay JSON text: functions add, replace and remove members, and leave the bytes of all
// other members unchanged. Only packages gateway and backends know the client or backend that a
// message belongs to.
package protocol

import "slices"

// Features are the properties of a revision. The zero value is not a revision.
type Features struct {
	Date          string // name of the revision, the value of protocolVersion
	PrimingEvents bool   // SSE streams begin with an empty event and can be resumed from it
	Batches       bool   // arrays of messages; an implementation MUST accept them in 2025-03-26
	Modern        bool   // no handshake, no sessions, no requests from servers

	Elicitation         bool // elicitation/create
	Audio               bool // content of type audio
	ResourceLinks       bool // content of type resource_link
	StructuredContent   bool // structuredContent and outputSchema, both of type object
	NonObjectStructured bool // structuredContent and outputSchema may be of any type
	TitledEnums         bool // enums with titles (oneOf) or multiple selection
	SamplingTools       bool // tools in sampling, and several content blocks per message
	SamplingContext     bool // includeContext needs a capability
}

// All revisions, oldest first. A revision has all features of the previous one, except
// PrimingEvents and Batches.
var revisions = []Features{
	{Date: "2024-11-05", Batches: true},
	{Date: "2025-03-26", Batches: true, Audio: true},
	{Date: "2025-06-18", Elicitation: true, Audio: true, ResourceLinks: true,
		StructuredContent: true},
	{Date: "2025-11-25", PrimingEvents: true, Elicitation: true, Audio: true, ResourceLinks: true,
		StructuredContent: true, TitledEnums: true, SamplingTools: true, SamplingContext: true},
	{Date: "2026-07-28", Modern: true, Elicitation: true, Audio: true, ResourceLinks: true,
		StructuredContent: true, NonObjectStructured: true, TitledEnums: true, SamplingTools: true,
		SamplingContext: true},
}

// Newest returns the newest revision.
func Newest() Features { return revisions[len(revisions)-1] }

// NewestLegacy returns the newest revision that initialize can negotiate.
func NewestLegacy() Features {
	newest := Oldest()
	for _, t := range revisions {
		if !t.Modern {
			newest = t
		}
	}
	return newest
}

// Oldest returns the oldest revision.
func Oldest() Features { return revisions[0] }

// RevisionDates returns the dates of all revisions, newest first.
func RevisionDates() []string {
	var all []string
	for i := range revisions {
		all = append(all, revisions[len(revisions)-1-i].Date)
	}
	return all
}

// FindRevision returns the revision with this date; ok is false if the date is unknown.
func FindRevision(date string) (Features, bool) {
	for _, t := range revisions {
		if t.Date == date {
			return t, true
		}
	}
	return Features{}, false
}

// Negotiate returns the revision with which a server responds to initialize: the requested revision
// if it is a known legacy revision, else the newest legacy revision ("Otherwise, the server MUST
// respond with another protocol version it supports", lifecycle). Modern revisions have no
// initialize.
func Negotiate(date string) Features {
	if t, ok := FindRevision(date); ok && !t.Modern {
		return t
	}
	return NewestLegacy()
}

// NewestModernOf returns the newest known modern revision in a list of dates; ok is false if the
// list contains no such revision.
func NewestModernOf(dates []string) (Features, bool) {
	for i := range revisions {
		t := revisions[len(revisions)-1-i]
		if t.Modern && slices.Contains(dates, t.Date) {
			return t, true
		}
	}
	return Features{}, false
}

// IsModernRevision reports whether a date that is not from _meta, for example from a header,
// belongs to the modern generation. Unknown dates after the first modern revision, and any text
// that sorts after this date, count as modern. "" belongs to no generation.
func IsModernRevision(date string) bool {
	return slices.ContainsFunc(revisions, func(t Features) bool {
		return t.Modern && date >= t.Date
	})
}
