package main

import (
	"mcpgateway/backends"
	"mcpgateway/internal/config"
)

// pageOwner owns the ids of login pages in the mask of the log.
const pageOwner = "page"

// tokenOwner returns the owner, in the mask of the log, of the tokens of a backend's login.
func tokenOwner(backend string) string { return "backend " + backend }

// tokenOwners returns the owners of masked tokens: the backends of a configuration, and those that
// run and that a reload may be about to remove, because their calls in flight continue.
func tokenOwners(configured []config.Backend, running []backends.Status) []string {
	all := []string{pageOwner}
	for _, b := range configured {
		all = append(all, tokenOwner(b.Name))
	}
	for _, b := range running {
		all = append(all, tokenOwner(b.Name))
	}
	return all
}
