package adminapi

import "time"

// A CatalogList is the response of GET /api/v1/catalog: the merged catalog, without profiles.
type CatalogList struct {
	Entries  []CatalogEntry   `json:"entries"`
	Problems []CatalogProblem `json:"problems"`
}

// A CatalogEntry is a tool, prompt, resource or resource template.
type CatalogEntry struct {
	Kind    string `json:"kind"` // tools, prompts, resources or resourceTemplates
	Name    string `json:"name"` // for clients; "" = it is not listed
	Backend string `json:"backend"`
	OwnName string `json:"own_name"` // at the backend
	// Why says why the entry has not the name that it would have otherwise; "" = it has it.
	Why         string `json:"why,omitempty"`
	Description string `json:"description,omitempty"`
}

// A CatalogProblem is something in the lists of a backend that was repaired, left out or hidden.
type CatalogProblem struct {
	Backend string `json:"backend"`
	What    string `json:"what"` // left out, repaired, suspicious, hidden or filter
	Item    string `json:"item"` // name at the backend, or the glob of a filter
	Why     string `json:"why"`
}

// A SeriesList is the response of GET /api/v1/series: the calls of the last 24 hours. Periods
// without calls have no point.
type SeriesList struct {
	Total    []SeriesPoint            `json:"total"`    // by minute
	Backends map[string][]SeriesPoint `json:"backends"` // by 10 minutes
}

// A SeriesPoint are the calls that ended in one period.
type SeriesPoint struct {
	Start  time.Time `json:"start"`
	Calls  uint32    `json:"calls"`
	Errors uint32    `json:"errors"`
	P50    float64   `json:"p50_ms"` // 0 = no call was sent
	P99    float64   `json:"p99_ms"`
}
