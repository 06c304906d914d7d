package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/reload"
)

// Errors and hints about tools and backends that a command does not find.

// deniedError returns the error about a tool of this name that a backend lists and the
// configuration denies, nil if there is no such tool. If only is not "", other backends are
// ignored.
func deniedError(a *app, name, only string) error {
	backend := only
	if only == "" {
		backend = a.backends.DeniedBy(catalog.Tools, name)
	}
	if backend == "" || !a.backends.Denies(backend, catalog.Tools, name) {
		return nil
	}
	return hintedError{
		fmt.Errorf("backend %s has the tool %q, and the configuration denies it",
			backend, printable(name)),
		editHint(a, "change allow and deny under tools of that backend"),
	}
}

// notApprovedError returns the error about a tool of this name that a backend hides because it is
// not approved, nil if there is no such tool. If only is not "", other backends are ignored.
func notApprovedError(a *app, name, only string) error {
	backend, err := a.backends.NotApproved(nil, name)
	if err == nil || only != "" && backend != only {
		return nil
	}
	return hintedError{fmt.Errorf("backend %s: %s", backend, printable(err.Error())),
		"gateway approve " + backend + " shows and accepts changes"}
}

// disabledError returns the error about the first disabled backend with a matching name, nil if
// there is none.
func disabledError(a *app, matches func(name string) bool) error {
	for _, s := range a.backends.Status() {
		if s.State == backends.Disabled && matches(s.Name) {
			return hintedError{
				fmt.Errorf("backend %s is disabled in the configuration", s.Name),
				editHint(a, "set enabled: true for it"),
			}
		}
	}
	return nil
}

// hasBackendPrefix returns a function that reports whether the tool's name begins with the prefix
// of a backend.
func hasBackendPrefix(a *app, tool string) func(backend string) bool {
	return func(backend string) bool {
		return strings.HasPrefix(tool, backend+a.Config.Catalog.Separator)
	}
}

// editHint returns a hint about the configuration, with the path of the file.
func editHint(a *app, what string) string {
	if a.Source == "" {
		return what
	}
	return what + " in " + printable(a.Source)
}

// nameHint returns the hint for a name that no tool has.
func nameHint(a *app, name string) string {
	var names []string
	for _, e := range a.view().Entries(catalog.Tools) {
		if e.Exposed != "" {
			names = append(names, e.Exposed)
			if e.Item.Original == name && e.Exposed != name {
				return "did you mean " + printable(e.Exposed) + "? gateway tools lists all"
			}
		}
	}
	if near, ok := config.Nearest(name, names); ok {
		return "did you mean " + printable(near) + "? gateway tools lists all"
	}
	return "gateway tools lists all tools"
}

// noBackendError returns the error about a configuration without an enabled backend.
func noBackendError(a *app) error {
	file := cmp.Or(printable(a.Source), "gateway.yaml")
	if len(a.Config.Backends) == 0 {
		return hintedError{
			errors.New("no backend is configured"), "list servers under backends: in " + file,
		}
	}
	var names []string
	for _, b := range a.Config.Backends {
		names = append(names, printable(b.Name))
	}
	return hintedError{
		errors.New("no backend is enabled"),
		"remove enabled: false from a server in " + file + ": " + reload.NameList(names),
	}
}
