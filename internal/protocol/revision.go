// Package revision holds the revisions of MCP as data, and what is between them:
// what each of them has is a trait, asked by name, so that nobody compares dates in
// passing, and what has to be rewritten from one to another is a pure function.
//
// There are two eras. In the one of sessions a conversation begins with initialize
// (2024-11-05 to 2025-11-25); in the stateless one each request says itself who
// asks (from 2026-07-28 on; [ClientMeta]).
//
// It refuses to decode what it need not change: results, questions and answers stay
// bytes, of which members are put in and taken out. And it refuses to know whose
// message it is: who asks whom is package gateway's and package backends'.
package protocol

import "slices"

// Features are what a revision has. The zero value is no revision.
type Features struct {
	Date          string // its name, as it stands in protocolVersion
	PrimingEvents bool   // a stream of events begins with an empty one, so that it can be resumed from its start
	Batches       bool   // arrays of messages; an implementation MUST take them in 2025-03-26
	Modern        bool   // no handshake, no sessions, nothing that servers ask: each request stands alone

	Audio               bool // content of type audio
	ResourceLinks       bool // content of type resource_link
	StructuredContent   bool // structuredContent and outputSchema; objects
	NonObjectStructured bool // they may be of any type
	TitledEnums         bool // enums with titles as oneOf, or of which one picks several
	SamplingTools       bool // the client's model may use tools; several blocks of content in one message
	SamplingContext     bool // includeContext needs a capability
}

// All revisions, oldest first. What one has the next ones have, too, but for how they
// go over HTTP.
var table = []Features{
	{Date: "2024-11-05", Batches: true},
	{Date: "2025-03-26", Batches: true, Audio: true},
	{Date: "2025-06-18", Audio: true, ResourceLinks: true, StructuredContent: true},
	{Date: "2025-11-25", PrimingEvents: true, Audio: true, ResourceLinks: true, StructuredContent: true,
		TitledEnums: true, SamplingTools: true, SamplingContext: true},
	{Date: "2026-07-28", Modern: true, Audio: true, ResourceLinks: true, StructuredContent: true, NonObjectStructured: true,
		TitledEnums: true, SamplingTools: true, SamplingContext: true},
}

// Newest returns the newest revision.
func Newest() Features { return table[len(table)-1] }

// NewestLegacy returns the newest revision that initialize can agree on.
func NewestLegacy() Features {
	newest := Oldest()
	for _, t := range table {
		if !t.Modern {
			newest = t
		}
	}
	return newest
}

// Oldest returns the oldest one.
func Oldest() Features { return table[0] }

// RevisionDates returns the names of all of them, the newest first.
func RevisionDates() []string {
	var all []string
	for i := range table {
		all = append(all, table[len(table)-1-i].Date)
	}
	return all
}

// FindRevision returns the revision of a date, and whether it is known.
func FindRevision(date string) (Features, bool) {
	for _, t := range table {
		if t.Date == date {
			return t, true
		}
	}
	return Features{}, false
}

// Negotiate returns the revision with which a server answers a client that asks
// for a date in initialize: that one if it is known, else the newest ("Otherwise,
// the server MUST respond with another protocol version it supports", lifecycle). It
// is never one that is stateless, for those have no initialize.
func Negotiate(date string) Features {
	if t, ok := FindRevision(date); ok && !t.Modern {
		return t
	}
	return NewestLegacy()
}

// NewestModernOf returns the newest stateless revision of a list of dates that is known, and
// whether there is any.
func NewestModernOf(dates []string) (Features, bool) {
	for i := range table {
		t := table[len(table)-1-i]
		if t.Modern && slices.Contains(dates, t.Date) {
			return t, true
		}
	}
	return Features{}, false
}
