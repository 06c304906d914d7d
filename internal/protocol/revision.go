// Package revision holds the revisions of MCP as data, and what is between them:
// what each of them has is a trait, asked by name, so that nobody compares dates in
// passing, and what has to be rewritten from one to another is a pure function.
//
// There are two eras. In the one of sessions a conversation begins with initialize
// (2024-11-05 to 2025-11-25); in the stateless one each request says itself who
// asks (from 2026-07-28 on; [Stamp]).
//
// It refuses to decode what it need not change: results, questions and answers stay
// bytes, of which members are put in and taken out. And it refuses to know whose
// message it is: who asks whom is package gateway's and package backends'.
package protocol

import "slices"

// Traits are what a revision has. The zero value is no revision.
type Traits struct {
	Date      string // its name, as it stands in protocolVersion
	Primes    bool   // a stream of events begins with an empty one, so that it can be resumed from its start
	Batches   bool   // arrays of messages; an implementation MUST take them in 2025-03-26
	Stateless bool   // no handshake, no sessions, nothing that servers ask: each request stands alone

	Audio           bool // content of type audio
	ResourceLinks   bool // content of type resource_link
	Structured      bool // structuredContent and outputSchema; objects
	AnyStructured   bool // they may be of any type
	EnumForms       bool // enums with titles as oneOf, or of which one picks several
	SamplingTools   bool // the client's model may use tools; several blocks of content in one message
	SamplingContext bool // includeContext needs a capability
}

// All revisions, oldest first. What one has the next ones have, too, but for how they
// go over HTTP.
var table = []Traits{
	{Date: "2024-11-05", Batches: true},
	{Date: "2025-03-26", Batches: true, Audio: true},
	{Date: "2025-06-18", Audio: true, ResourceLinks: true, Structured: true},
	{Date: "2025-11-25", Primes: true, Audio: true, ResourceLinks: true, Structured: true,
		EnumForms: true, SamplingTools: true, SamplingContext: true},
	{Date: "2026-07-28", Stateless: true, Audio: true, ResourceLinks: true, Structured: true, AnyStructured: true,
		EnumForms: true, SamplingTools: true, SamplingContext: true},
}

// Newest returns the newest revision.
func Newest() Traits { return table[len(table)-1] }

// NewestWithSessions returns the newest revision that initialize can agree on.
func NewestWithSessions() Traits {
	newest := Oldest()
	for _, t := range table {
		if !t.Stateless {
			newest = t
		}
	}
	return newest
}

// Oldest returns the oldest one.
func Oldest() Traits { return table[0] }

// Dates returns the names of all of them, the newest first.
func Dates() []string {
	var all []string
	for i := range table {
		all = append(all, table[len(table)-1-i].Date)
	}
	return all
}

// Find returns the revision of a date, and whether it is known.
func Find(date string) (Traits, bool) {
	for _, t := range table {
		if t.Date == date {
			return t, true
		}
	}
	return Traits{}, false
}

// Negotiate returns the revision with which a server answers a client that asks
// for a date in initialize: that one if it is known, else the newest ("Otherwise,
// the server MUST respond with another protocol version it supports", lifecycle). It
// is never one that is stateless, for those have no initialize.
func Negotiate(date string) Traits {
	if t, ok := Find(date); ok && !t.Stateless {
		return t
	}
	return NewestWithSessions()
}

// Common returns the newest stateless revision of a list of dates that is known, and
// whether there is any.
func Common(dates []string) (Traits, bool) {
	for i := range table {
		t := table[len(table)-1-i]
		if t.Stateless && slices.Contains(dates, t.Date) {
			return t, true
		}
	}
	return Traits{}, false
}
