package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/reload"
)

func toolsCommand(c *cli) *cobra.Command {
	asJSON, only := false, ""
	cmd := &cobra.Command{
		Use:   "tools [NAME]",
		Short: "Print the merged list of tools: name, backend, and name at the backend",
		Long: `tools starts every backend once and prints the merged list of tools: each tool's
name, its backend, and its name at the backend. It shows the tools that a client without
capabilities sees: some servers list more tools to clients that support elicitation,
sampling or roots.

With NAME it prints the description and arguments of this tool; with --json its complete
schema. The exit code is 1 if a backend has failed; the tools of all other backends are still
printed.

    gateway tools --backend docs
    gateway tools search`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			begin := func(a *app) { c.printSourceOnTerminal(a, asJSON) }
			return c.withStartedBackends(cmd.Context(), begin, func(a *app) error {
				entries, err := a.selectTools(only, args)
				if err != nil {
					_ = c.printFailedBackends(a, only)
					return err
				}
				if len(args) > 0 && !asJSON {
					err = c.printTool(a, entries[0])
				} else {
					err = c.printTools(a, entries, asJSON)
				}
				if err != nil {
					return err
				}
				return c.printFailedBackends(a, only)
			})
		},
	}
	c.timeoutFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print JSON: name, backend, backend_tool, and the tool as listed by the backend")
	cmd.Flags().StringVar(&only, "backend", "", "print only the tools of the backend `NAME`")
	return cmd
}

// selectTools returns the tools of a backend ("" = all backends). If args contains a name,
// selectTools returns only the tools with this exposed name, and the tools without an exposed name
// that have this original name. It returns an error if the backend is unknown or disabled, or if no
// tool has the name.
func (a *app) selectTools(backend string, args []string) ([]catalog.Entry, error) {
	var names []string
	for _, s := range a.backends.Status() {
		names = append(names, s.Name)
	}
	if backend != "" && !slices.Contains(names, backend) {
		return nil, usageError{
			fmt.Errorf("no backend is named %q", backend),
			"the backends are: " + reload.NameList(names),
		}
	}
	if err := a.disabledError(func(name string) bool { return name == backend }); err != nil {
		return nil, err
	}
	var entries, named []catalog.Entry
	for _, e := range a.backends.View().Entries(catalog.Tools) {
		if backend == "" || e.Backend == backend {
			entries = append(entries, e)
			isNamed := len(args) > 0 &&
				(e.Exposed == args[0] || e.Exposed == "" && e.Item.Original == args[0])
			if isNamed {
				named = append(named, e)
			}
		}
	}
	switch {
	case len(args) == 0:
		return entries, nil
	case len(named) == 0:
		err := cmp.Or(a.deniedError(args[0], backend), a.disabledError(a.hasBackendPrefix(args[0])))
		if err != nil {
			return nil, err
		}
		return nil, hintedError{fmt.Errorf("no tool is named %q", args[0]), a.nameHint(args[0])}
	}
	return named, nil
}

// deniedError returns the error about a tool of this name that a backend lists and the
// configuration denies, nil if there is no such tool. If only is not "", other backends are
// ignored.
func (a *app) deniedError(name, only string) error {
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
		a.editHint("change allow and deny under tools of that backend"),
	}
}

// disabledError returns the error about the first disabled backend with a matching name, nil if
// there is none.
func (a *app) disabledError(matches func(name string) bool) error {
	for _, s := range a.backends.Status() {
		if s.State == backends.Disabled && matches(s.Name) {
			return hintedError{
				fmt.Errorf("backend %s is disabled in the configuration", s.Name),
				a.editHint("set enabled: true for it"),
			}
		}
	}
	return nil
}

// hasBackendPrefix returns a function that reports whether the tool's name begins with the prefix
// of a backend.
func (a *app) hasBackendPrefix(tool string) func(backend string) bool {
	return func(backend string) bool {
		return strings.HasPrefix(tool, backend+a.Config.Catalog.Separator)
	}
}

// editHint returns a hint about the configuration, with the path of the file.
func (a *app) editHint(what string) string {
	if a.Source == "" {
		return what
	}
	return what + " in " + printable(a.Source)
}

// nameHint returns the hint for a name that no tool has.
func (a *app) nameHint(name string) string {
	var names []string
	for _, e := range a.backends.View().Entries(catalog.Tools) {
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

// printTool prints the description and the arguments of a tool.
func (c *cli) printTool(a *app, e catalog.Entry) error {
	var t struct {
		InputSchema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		} `json:"inputSchema"`
	}
	_ = json.Unmarshal(e.Item.Raw(), &t) // a schema of another form has no arguments to print
	fmt.Fprintf(c.out, "%s (%s of backend %s)\n",
		orDash(a.maskedName(e.Exposed)), a.maskedName(e.Item.Original), e.Backend)
	if text := a.maskedLine(e.Item.Description()); text != "" {
		fmt.Fprintln(c.out, text)
	}
	if len(t.InputSchema.Properties) == 0 {
		_, err := fmt.Fprintln(c.out, "no arguments")
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ARGUMENT\tTYPE\tREQUIRED\tDESCRIPTION")
	for _, name := range slices.Sorted(maps.Keys(t.InputSchema.Properties)) {
		var p struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(t.InputSchema.Properties[name], &p) // a schema may also be true
		required := "-"
		if slices.Contains(t.InputSchema.Required, name) {
			required = "yes"
		}
		kind := truncate(a.maskedLine(schemaType(t.InputSchema.Properties[name])), typeWidth)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n",
			a.maskedName(name), orDash(kind), required, a.maskedLine(p.Description))
	}
	return w.Flush()
}

const typeWidth = 60 // bound of the printed type of an argument, in characters

// schemaType describes the type of a schema, including one nested level: "array of string",
// "object {name, tags}", "string: asc, desc".
func schemaType(schema []byte) string {
	var s struct {
		Type       json.RawMessage            `json:"type"`
		Enum       []json.RawMessage          `json:"enum"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      struct {
			Type json.RawMessage `json:"type"`
		} `json:"items"`
	}
	_ = json.Unmarshal(schema, &s) // an invalid schema is not printed
	bare := strings.NewReplacer(`"`, "", "[", "", "]", "")
	kind := bare.Replace(string(s.Type))
	switch {
	case len(s.Enum) > 0:
		var values []string
		for _, v := range s.Enum {
			values = append(values, strings.Trim(string(v), `"`))
		}
		return strings.TrimPrefix(kind+": "+strings.Join(values, ", "), ": ")
	case len(s.Properties) > 0:
		names := slices.Sorted(maps.Keys(s.Properties))
		return orDash(kind) + " {" + strings.Join(names, ", ") + "}"
	case s.Items.Type != nil:
		return orDash(kind) + " of " + bare.Replace(string(s.Items.Type))
	}
	return kind
}

// A toolRow is the output of tools --json for a tool.
type toolRow struct {
	Name        string          `json:"name"` // "" = not listed
	Backend     string          `json:"backend"`
	BackendTool string          `json:"backend_tool"`
	Tool        json.RawMessage `json:"tool"` // as listed by the backend, indented
}

func (c *cli) printTools(a *app, entries []catalog.Entry, asJSON bool) error {
	if asJSON {
		rows := make([]toolRow, 0, len(entries))
		for _, e := range entries {
			rows = append(rows, toolRow{e.Exposed, e.Backend, e.Item.Original, e.Item.Raw()})
		}
		enc := json.NewEncoder(c.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tBACKEND\tOWN NAME\tDESCRIPTION")
	var t total
	for _, e := range entries {
		t.add(catalog.Tools, e)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", orDash(a.maskedName(e.Exposed)), e.Backend,
			a.maskedName(e.Item.Original), truncate(a.maskedLine(e.Item.Description()), 60))
	}
	fmt.Fprintf(w, "total\t\t\t%d tools, %s in the list\n",
		t.counts[catalog.Tools], formatSize(t.bytes))
	return w.Flush()
}

// noBackendError returns the error about a configuration without an enabled backend.
func (a *app) noBackendError() error {
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

// printFailedBackends prints the problems of the failed backends. After a timeout, a backend that
// is not settled has also failed. If only is not "", printFailedBackends considers only this
// backend. It returns an error if a backend has failed, or if no backend is enabled.
func (c *cli) printFailedBackends(a *app, only string) error {
	all := enabled(a.backends.Status())
	failed := 0
	for _, s := range all {
		if (s.Settled || a.timedOutAfter > 0) && !isHealthy(s) && (only == "" || only == s.Name) {
			failed++
			fmt.Fprintf(c.err, "gateway: backend %s: %s\n", s.Name, a.problemText(s))
		}
	}
	switch {
	case len(all) == 0:
		return a.noBackendError()
	case failed == 0:
		return nil
	case failed == len(all):
		return hintedError{fmt.Errorf("all backends failed"), "gateway check shows more"}
	}
	return hintedError{
		fmt.Errorf("%d of %d backends failed", failed, len(all)), "gateway check shows more",
	}
}
