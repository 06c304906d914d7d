package config

import (
	"reflect"
	"testing"
)

// A limit is a number of requests per second, minute or hour; without burst, this number may be
// sent at once.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		rate      Rate
		perSecond float64
		capacity  int
	}{
		{Rate{}, 0, 0},
		{Rate{Limit: "10/s"}, 10, 10},
		{Rate{Limit: "600/m"}, 10, 600},
		{Rate{Limit: "600/m", Burst: 50}, 10, 50},
		{Rate{Limit: "3600/h", Burst: 1}, 1, 1},
		{Rate{Limit: "1000000/s"}, 1_000_000, 1_000_000},
	} {
		if got := c.rate.PerSecond(); got != c.perSecond {
			t.Errorf("%v: %v requests per second", c.rate, got)
		}
		if got := c.rate.Capacity(); got != c.capacity {
			t.Errorf("%v: %d requests at once", c.rate, got)
		}
		if c.rate.IsZero() != (c.capacity == 0) {
			t.Errorf("%v: IsZero", c.rate)
		}
	}
}

// A reload applies changed rates in place: no backend is restarted.
func TestDiffOfRates(t *testing.T) {
	const without = "backends: [{name: a, command: x}]"
	const file = `
auth: {tokens: [{token: 0123456789abcdef, rate: 1/s}]}
profiles: {reader: {rate: 1/s}}
backends: [{name: a, command: x, rate: 1/s}]`
	for _, c := range []struct{ name, old, next, want string }{
		{"backend", without, "backends: [{name: a, command: x, rate: 2/s}]",
			"Changed:[{a [rate.limit] in place}]"},
		{"burst", "backends: [{name: a, command: x, rate: 2/s}]",
			"backends: [{name: a, command: x, rate: {limit: 2/s, burst: 5}}]",
			"Changed:[{a [rate.burst] in place}]"},
		{"form", "backends: [{name: a, command: x, rate: 2/s}]",
			"backends: [{name: a, command: x, rate: {limit: 2/s}}]", "Unchanged:[a]"},
		{"removed", "backends: [{name: a, command: x, rate: 2/s}]", without,
			"Changed:[{a [rate.limit] in place}]"},
		{"with another key", without, "backends: [{name: a, command: y, rate: 2/s}]",
			"Changed:[{a [command rate.limit] restarts}]"},
		{"profile", "profiles: {p: {rate: 1/s}}\n" + without,
			"profiles: {p: {rate: {limit: 2/s, burst: 3}}}\n" + without,
			"Unchanged:[a] Applied:[profiles.p.rate.burst profiles.p.rate.limit]"},
		{"token", "auth: {tokens: [{token: 0123456789abcdef}]}\n" + without,
			"auth: {tokens: [{token: 0123456789abcdef, rate: 1/s}]}\n" + without,
			"Unchanged:[a] Applied:[auth.tokens]"},
		{"equal", file, file, "Unchanged:[a]"},
	} {
		if got := summary(Diff(loadText(t, c.old), loadText(t, c.next))); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	b := loadText(t, file).Backends[0]
	other := loadText(t, without).Backends[0]
	if !reflect.DeepEqual(b.WithoutRuntimeKeys(), other.WithoutRuntimeKeys()) {
		t.Error("the rate is not a runtime key")
	}
}
