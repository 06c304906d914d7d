package config

import (
	"strconv"
	"strings"
	"time"
)

// A Rate limits the requests of clients per time. In the file it is a mapping with these keys, or
// only the text of the limit. The zero value is no limit.
type Rate struct {
	// Limit is a number of requests and a unit of time: 10/s, 600/m or 1000/h.
	Limit RateLimit `koanf:"limit"`
	// Burst is the number of requests that may be sent at once after a pause; 0 = the number in
	// Limit.
	Burst int `koanf:"burst"`
}

// A RateLimit is the text of a limit. "" = no limit.
type RateLimit string

// maxRateRequests bounds the number of requests in a limit, and a burst.
const maxRateRequests = 1_000_000

// rateUnits are the units of time in a limit.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// parse returns the number of requests and the time of a limit. It returns false if the text has
// another form.
func (l RateLimit) parse() (requests uint64, per time.Duration, ok bool) {
	number, unit, _ := strings.Cut(string(l), "/")
	requests, err := strconv.ParseUint(number, 10, 64)
	per = rateUnits[unit]
	return requests, per, err == nil && per > 0
}

// IsZero reports whether there is no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// PerSecond returns the limit in requests per second; 0 = no limit.
func (r Rate) PerSecond() float64 {
	requests, per, ok := r.Limit.parse()
	if !ok {
		return 0
	}
	return float64(requests) / per.Seconds()
}

// Capacity returns the number of requests that may be sent at once after a pause.
func (r Rate) Capacity() int {
	if r.Burst > 0 {
		return r.Burst
	}
	requests, _, _ := r.Limit.parse()
	return int(min(requests, maxRateRequests))
}
