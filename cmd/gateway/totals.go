package main

import (
	"fmt"

	"mcpgateway/catalog"
)

// A total counts the entries in the lists for clients, and their bytes. A client reads all entries,
// and passes most of the tools to its model.
type total struct {
	counts [catalog.NumKinds]int
	bytes  int
}

// add counts an entry. An entry without an exposed name is not listed.
func (t *total) add(k catalog.Kind, e catalog.Entry) {
	if e.Exposed != "" {
		t.counts[k]++
		t.bytes += len(e.Item.Raw())
	}
}

// totalOf returns the total for all lists of a snapshot.
func totalOf(v *catalog.Snapshot) (t total) {
	for k := range catalog.Kind(catalog.NumKinds) {
		for _, e := range v.Entries(k) {
			t.add(k, e)
		}
	}
	return t
}

// formatSize formats a number of bytes.
func formatSize(bytes int) string {
	switch {
	case bytes < 1000:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 1_000_000:
		return fmt.Sprintf("%.1f KB", float64(bytes)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}
