package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mcpgateway/catalog"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/reload"
)

func toolsCommand(c *cli) *cobra.Command {
	asJSON, only := false, ""
	var timeout startTimeout
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
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			printSelected := func(o *oneShot) error {
				entries, err := selectTools(o.app, only, args)
				if err != nil {
					_ = o.printFailedBackends(only)
					return err
				}
				switch {
				case asJSON:
					err = printToolsJSON(o.out, entries)
				case len(args) > 0:
					err = printTool(o.out, o.mask, entries[0])
				default:
					err = printTools(o.out, o.mask, entries)
				}
				if err != nil {
					return err
				}
				return o.printFailedBackends(only)
			}
			show := showSource(c.stdio, asJSON)
			return withStartedBackends(cmd.Context(), c, timeout, show, printSelected)
		},
	}
	timeout.addFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print JSON: name, backend, backend_tool, and the tool as listed by the backend")
	cmd.Flags().StringVar(&only, "backend", "", "print only the tools of the backend `NAME`")
	c.source.addProfileFlag(cmd)
	cmd.ValidArgsFunction = firstArgument(c.source.toolNames)
	completeFlag(cmd, "backend", c.source.backendNames)
	return cmd
}

// selectTools returns the tools of a backend ("" = all backends). If args contains a name,
// selectTools returns only the tools with this exposed name, and the tools without an exposed name
// that have this original name. It returns an error if the backend is unknown or disabled, or if no
// tool has the name.
func selectTools(a *app, backend string, args []string) ([]catalog.Entry, error) {
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
	if err := disabledError(a, func(name string) bool { return name == backend }); err != nil {
		return nil, err
	}
	var entries, named []catalog.Entry
	for _, e := range a.view().Entries(catalog.Tools) {
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
		name := args[0]
		err := cmp.Or(deniedError(a, name, backend), notApprovedError(a, name, backend),
			disabledError(a, hasBackendPrefix(a, name)))
		if err != nil {
			return nil, err
		}
		return nil, hintedError{fmt.Errorf("no tool is named %q", name), nameHint(a, name)}
	}
	return named, nil
}

// printTool prints the description and the arguments of a tool.
func printTool(out io.Writer, mask *logging.Mask, e catalog.Entry) error {
	var t struct {
		InputSchema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		} `json:"inputSchema"`
	}
	_ = json.Unmarshal(e.Item.Raw(), &t) // a schema of another form has no arguments to print
	fmt.Fprintf(out, "%s (%s of backend %s)\n",
		orDash(maskedName(mask, e.Exposed)), maskedName(mask, e.Item.Original), e.Backend)
	if text := maskedLine(mask, e.Item.Description()); text != "" {
		fmt.Fprintln(out, text)
	}
	if len(t.InputSchema.Properties) == 0 {
		_, err := fmt.Fprintln(out, "no arguments")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
		kind := truncate(maskedLine(mask, schemaType(t.InputSchema.Properties[name])), typeWidth)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n",
			maskedName(mask, name), orDash(kind), required, maskedLine(mask, p.Description))
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

// printToolsJSON prints the tools as JSON.
func printToolsJSON(out io.Writer, entries []catalog.Entry) error {
	rows := make([]toolRow, 0, len(entries))
	for _, e := range entries {
		rows = append(rows, toolRow{e.Exposed, e.Backend, e.Item.Original, e.Item.Raw()})
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

// printTools prints one row per tool, and a row with totals.
func printTools(out io.Writer, mask *logging.Mask, entries []catalog.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tBACKEND\tOWN NAME\tDESCRIPTION")
	var t total
	for _, e := range entries {
		t.add(catalog.Tools, e)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", orDash(maskedName(mask, e.Exposed)), e.Backend,
			maskedName(mask, e.Item.Original), truncate(maskedLine(mask, e.Item.Description()), 60))
	}
	fmt.Fprintf(w, "total\t\t\t%d tools, %s in the list\n",
		t.counts[catalog.Tools], formatSize(t.bytes))
	return w.Flush()
}
