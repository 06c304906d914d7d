// Package mrtr contains what the gateway needs for input requests of backends to clients, without
// the calls themselves: which capability a request requires, the form of a request for a client of
// the modern generation, the queue of unanswered requests, the tickets with which a client
// continues a call (multi round-trip requests, 2026-07-28), and which tickets were used.
package mrtr

import "mcpgateway/internal/text"

// truncate shortens text of a client or backend for errors.
func truncate(s string) string { return text.Truncate(s, 256) }
