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
)

func toolsCommand(f *flags) *cobra.Command {
	asJSON, only := false, ""
	cmd := &cobra.Command{
		Use:   "tools [NAME]",
		Short: "Print the merged catalog: each tool's name, whose it is, and its own name",
		Long: `tools starts every backend once and prints the merged catalog: each tool's name, whose it
is, and its own name. It shows what a client without capabilities sees: a server may list
more to one that can be asked something (elicitation, sampling, roots).

With NAME it prints that tool's description and arguments; with --json, too, its whole schema.
The exit code is 1 if a backend failed, though the tools of the others are printed.

    gateway tools --backend docs
    gateway tools search`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			say := func(a *app) { f.sayFileToPerson(a, asJSON) }
			return f.withAll(cmd.Context(), say, func(a *app) error {
				entries, err := a.pick(only, args)
				if err != nil {
					_ = f.tellFailed(a, only)
					return err
				}
				if len(args) > 0 && !asJSON {
					err = f.printTool(a, entries[0])
				} else {
					err = f.printTools(a, entries, asJSON)
				}
				if err != nil {
					return err
				}
				return f.tellFailed(a, only)
			})
		},
	}
	f.timeoutFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: name, backend, backend_tool, and the tool as the backend lists it")
	cmd.Flags().StringVar(&only, "backend", "", "print the tools of the backend `NAME` alone")
	return cmd
}

// pick returns the tools of one backend, "" = of all, that have the name in args, if there is one.
func (a *app) pick(backend string, args []string) ([]catalog.Entry, error) {
	if all := a.set.Status(); backend != "" && !slices.ContainsFunc(all, func(s backends.Status) bool { return s.Name == backend }) {
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		return nil, usageError{fmt.Errorf("no backend is named %q", backend), "the backends are: " + nameList(names)}
	} else if err := a.disabled(func(name string) bool { return name == backend }); err != nil {
		return nil, err
	}
	var entries, named []catalog.Entry
	for _, e := range a.set.View().Entries(catalog.Tools) {
		if backend == "" || e.Backend == backend {
			entries = append(entries, e)
			if len(args) > 0 && (e.Exposed == args[0] || e.Exposed == "" && e.Item.Original == args[0]) {
				named = append(named, e)
			}
		}
	}
	switch {
	case len(args) == 0:
		return entries, nil
	case len(named) == 0:
		if err := cmp.Or(a.denied(args[0], backend), a.disabled(a.isPrefixOf(args[0]))); err != nil {
			return nil, err
		}
		return nil, hinted{fmt.Errorf("no tool is named %q", args[0]), a.meant(args[0])}
	}
	return named, nil
}

// denied returns the error about a tool that a backend, only if that is not "", lists and the configuration denies; nil if
// there is none of that name.
func (a *app) denied(name, only string) error {
	backend := only
	if only == "" {
		backend = a.set.DeniedBy(catalog.Tools, name)
	}
	if backend == "" || !a.set.Denies(backend, catalog.Tools, name) {
		return nil
	}
	return hinted{
		fmt.Errorf("backend %s has the tool %q, and the configuration denies it", backend, plain(name)),
		a.edit("change allow and deny under tools of that backend"),
	}
}

// disabled returns the error about the first backend that is disabled and has a name that matches; nil if there is none.
func (a *app) disabled(matches func(name string) bool) error {
	for _, s := range a.set.Status() {
		if s.State == backends.Disabled && matches(s.Name) {
			return hinted{fmt.Errorf("backend %s is disabled in the configuration", s.Name), a.edit("set enabled: true for it")}
		}
	}
	return nil
}

// isPrefixOf returns what tells whether a tool's name has the name of a backend in front.
func (a *app) isPrefixOf(tool string) func(backend string) bool {
	return func(backend string) bool { return strings.HasPrefix(tool, backend+a.Config.Catalog.Separator) }
}

// edit returns a hint about the configuration, with the name of its file.
func (a *app) edit(what string) string {
	if a.Source == "" {
		return what
	}
	return what + " in " + plain(a.Source)
}

// meant returns the hint about a name that no tool has.
func (a *app) meant(name string) string {
	var names []string
	for _, e := range a.set.View().Entries(catalog.Tools) {
		if e.Exposed != "" {
			names = append(names, e.Exposed)
			if e.Item.Original == name && e.Exposed != name {
				return "did you mean " + plain(e.Exposed) + "? gateway tools lists all"
			}
		}
	}
	if near, ok := config.Nearest(name, names); ok {
		return "did you mean " + plain(near) + "? gateway tools lists all"
	}
	return "gateway tools lists them"
}

// printTool prints a tool for a person: its description and its arguments.
func (f *flags) printTool(a *app, e catalog.Entry) error {
	var t struct {
		InputSchema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		} `json:"inputSchema"`
	}
	_ = json.Unmarshal(e.Item.Raw(), &t) // a schema of another form has no arguments to print
	fmt.Fprintf(f.out, "%s (%s of backend %s)\n", dash(a.named(e.Exposed)), a.named(e.Item.Original), e.Backend)
	if text := a.line(e.Item.Description()); text != "" {
		fmt.Fprintln(f.out, text)
	}
	if len(t.InputSchema.Properties) == 0 {
		_, err := fmt.Fprintln(f.out, "no arguments")
		return err
	}
	w := tabwriter.NewWriter(f.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ARGUMENT\tTYPE\tREQUIRED\tDESCRIPTION")
	for _, name := range slices.Sorted(maps.Keys(t.InputSchema.Properties)) {
		var p struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(t.InputSchema.Properties[name], &p) // true is a schema, too
		required := "-"
		if slices.Contains(t.InputSchema.Required, name) {
			required = "yes"
		}
		kind := clip(a.line(typeOf(t.InputSchema.Properties[name])), typeWidth)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.named(name), dash(kind), required, a.line(p.Description))
	}
	return w.Flush()
}

const typeWidth = 60 // characters of the type of an argument that are printed

// typeOf returns the type of a schema for a person, with one level of what is in it:
// "array of string", "object {name, tags}", "string: asc, desc".
func typeOf(schema []byte) string {
	var s struct {
		Type       json.RawMessage            `json:"type"`
		Enum       []json.RawMessage          `json:"enum"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      struct {
			Type json.RawMessage `json:"type"`
		} `json:"items"`
	}
	_ = json.Unmarshal(schema, &s) // what cannot be read is not printed
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
		return dash(kind) + " {" + strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ") + "}"
	case s.Items.Type != nil:
		return dash(kind) + " of " + bare.Replace(string(s.Items.Type))
	}
	return kind
}

// A row is a tool as tools --json prints it.
type row struct {
	Name        string          `json:"name"` // "" = not listed
	Backend     string          `json:"backend"`
	BackendTool string          `json:"backend_tool"`
	Tool        json.RawMessage `json:"tool"` // as the backend lists it, indented
}

func (f *flags) printTools(a *app, entries []catalog.Entry, asJSON bool) error {
	if asJSON {
		rows := make([]row, 0, len(entries))
		for _, e := range entries {
			rows = append(rows, row{e.Exposed, e.Backend, e.Item.Original, e.Item.Raw()})
		}
		enc := json.NewEncoder(f.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	w := tabwriter.NewWriter(f.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tBACKEND\tOWN NAME\tDESCRIPTION")
	var t total
	for _, e := range entries {
		t.add(catalog.Tools, e)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", dash(a.named(e.Exposed)), e.Backend, a.named(e.Item.Original), clip(a.line(e.Item.Description()), 60))
	}
	fmt.Fprintf(w, "total\t\t\t%d tools, %s in the list\n", t.counts[catalog.Tools], size(t.bytes))
	return w.Flush()
}

// noBackend is the error about a configuration that has no backend to start.
func (a *app) noBackend() error {
	return hinted{errors.New("no backend is configured, or none is enabled"), "list servers under backends: in " + cmp.Or(plain(a.Source), "gateway.yaml")}
}

// tellFailed names the backends whose tools are missing, of one backend or of all if only is "". It is
// an error if there is one.
func (f *flags) tellFailed(a *app, only string) error {
	all := enabled(a.set.Status())
	sick := 0
	for _, s := range all {
		if (s.Settled || a.waited > 0) && !well(s) && (only == "" || only == s.Name) {
			sick++
			fmt.Fprintf(f.err, "gateway: backend %s: %s\n", s.Name, a.problem(s))
		}
	}
	switch {
	case len(all) == 0:
		return a.noBackend()
	case sick == 0:
		return nil
	case sick == len(all):
		return hinted{fmt.Errorf("no backend could be asked"), "gateway check says more"}
	}
	return hinted{fmt.Errorf("%d of %d backends failed", sick, len(all)), "gateway check says more"}
}
