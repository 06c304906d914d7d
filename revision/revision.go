// Package revision holds the revisions of MCP as data: what each of them has is
// a trait, asked by name, so that nobody compares dates in passing.
//
// It refuses to know the revisions after 2025-11-25, which have no initialize
// and so cannot be negotiated here.
package revision

// Traits are what a revision has. The zero value is no revision.
type Traits struct {
	Date    string // its name, as it stands in protocolVersion
	Primes  bool   // a stream of events begins with an empty one, so that it can be resumed from its start
	Batches bool   // arrays of messages; an implementation MUST take them in 2025-03-26
}

// The revisions with the initialize handshake, oldest first.
var table = []Traits{
	{Date: "2024-11-05", Batches: true},
	{Date: "2025-03-26", Batches: true},
	{Date: "2025-06-18"},
	{Date: "2025-11-25", Primes: true},
}

// Newest returns the newest revision.
func Newest() Traits { return table[len(table)-1] }

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
// for a date: that one if it is known, else the newest ("Otherwise, the server
// MUST respond with another protocol version it supports", lifecycle).
func Negotiate(date string) Traits {
	if t, ok := Find(date); ok {
		return t
	}
	return Newest()
}
