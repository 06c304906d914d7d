package main

import (
	"mcpgateway/backends"
	"mcpgateway/internal/activity"
)

// adminMetrics implements metrics.StateSource.
type adminMetrics struct{ adminStatus }

// Entries implements metrics.StateSource. The names are masked, because backends choose them. Those
// that become equal are counted together.
func (a adminMetrics) Entries() map[activity.EntryKey]activity.EntryCounters {
	masked := make(map[activity.EntryKey]activity.EntryCounters)
	for key, counters := range a.activity.Entries() {
		key.Name = a.mask.String(key.Name)
		sum := masked[key]
		sum.Merge(&counters)
		masked[key] = sum
	}
	return masked
}

// States implements metrics.StateSource.
func (adminMetrics) States() (all []string) {
	for _, s := range backends.States {
		all = append(all, string(s))
	}
	return all
}

// Commit implements metrics.StateSource.
func (adminMetrics) Commit() string { return ownBuild().Commit }
