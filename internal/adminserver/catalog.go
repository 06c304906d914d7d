package adminserver

import (
	"net/http"

	"mcpgateway/internal/adminapi"
)

// A CatalogSource knows the merged catalog, the configuration, and how many calls there were. Its
// methods may read files, but do not block otherwise.
type CatalogSource interface {
	Catalog() adminapi.CatalogList
	Configuration() adminapi.ConfigurationList
	Series() adminapi.SeriesList
}

// serveValue returns the handler of a path without parameters, whose response is that of get.
func serveValue[T any](get func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, get()) }
}
