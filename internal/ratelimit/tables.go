package ratelimit

import (
	"time"

	"mcpgateway/internal/config"
)

// A limitTable contains limits by a name of the configuration.
type limitTable map[string]*limit

// with returns a table with these limits. Those that t has too keep their level. what describes a
// limit in errors.
func (t limitTable) with(rates map[string]config.Rate, now time.Time,
	what func(name string) string) limitTable {
	next := make(limitTable)
	for name, r := range rates {
		if r.IsZero() {
			continue
		}
		one := t[name]
		if one == nil {
			one = newLimit(what(name), r)
		}
		one.configure(r, now)
		next[name] = one
	}
	return next
}
