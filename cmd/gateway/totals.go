package main

import (
	"fmt"

	"mcpgateway/catalog"
)

// A total is how much is listed to clients, and how many bytes the entries have: a client reads them all,
// and gives most of the tools to its model.
type total struct {
	counts [catalog.NumKinds]int
	bytes  int
}

// add adds an entry. One without an exposed name is not listed.
func (t *total) add(k catalog.Kind, e catalog.Entry) {
	if e.Exposed != "" {
		t.counts[k]++
		t.bytes += len(e.Item.Raw())
	}
}

// totalOf returns the total of all lists.
func totalOf(v *catalog.Snapshot) (t total) {
	for k := range catalog.Kind(catalog.NumKinds) {
		for _, e := range v.Entries(k) {
			t.add(k, e)
		}
	}
	return t
}

// formatSize is a number of bytes for a person.
func formatSize(bytes int) string {
	switch {
	case bytes < 1000:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 1_000_000:
		return fmt.Sprintf("%.1f KB", float64(bytes)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}
