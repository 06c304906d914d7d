package main

import (
	"mcpgateway/backends"
	"mcpgateway/internal/activity"
)

// adminMetrics implements metrics.StateSource.
type adminMetrics struct{ adminStatus }

// Entries implements metrics.StateSource. The keys are masked, because backends choose the names.
func (a adminMetrics) Entries() map[activity.EntryKey]activity.EntryCounters {
	all := a.activity.Entries()
	for key, counters := range all {
		if name := a.mask.String(key.Name); name != key.Name {
			delete(all, key)
			key.Name = name
			all[key] = counters
		}
	}
	return all
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
