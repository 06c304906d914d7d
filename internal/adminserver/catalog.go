package adminserver

import (
	"net/http"

	"mcpgateway/internal/adminapi"
)

// A CatalogSource knows the merged catalog, and how many calls there were. Its methods do not
// block.
type CatalogSource interface {
	Catalog() adminapi.CatalogList
	Series() adminapi.SeriesList
}

// serveValue returns the handler of a path without parameters, whose response is that of get.
func serveValue[T any](get func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, get()) }
}
