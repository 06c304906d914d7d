package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mcpgateway/catalog"
)

func toolsCommand(f *flags) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Print the merged catalog: each tool's name, whose it is, and its own name",
		Long: `tools starts every backend once and prints the merged catalog: each tool's name, whose it
is, and its own name. It shows what a client without capabilities sees: a server may list
more to one that can be asked something (elicitation, sampling, roots).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			say := func(a *app) { f.sayFileToPerson(a, asJSON) }
			return f.withAll(cmd.Context(), say, func(a *app) error {
				if err := f.printTools(a, asJSON); err != nil {
					return err
				}
				return f.tellFailed(a)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: name, backend, backend_tool, and the tool as the backend lists it")
	return cmd
}

// A row is a tool as tools --json prints it.
type row struct {
	Name        string          `json:"name"` // "" = not listed
	Backend     string          `json:"backend"`
	BackendTool string          `json:"backend_tool"`
	Tool        json.RawMessage `json:"tool"` // as the backend lists it, indented
}

func (f *flags) printTools(a *app, asJSON bool) error {
	entries := a.set.View().Entries(catalog.Tools)
	if asJSON {
		rows := make([]row, 0, len(entries))
		for _, e := range entries {
			rows = append(rows, row{e.Exposed, e.Backend, e.Item.Own, e.Item.Raw()})
		}
		enc := json.NewEncoder(f.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	w := tabwriter.NewWriter(f.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tBACKEND\tOWN NAME\tDESCRIPTION")
	for _, e := range entries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", dash(e.Exposed), e.Backend, plain(e.Item.Own), clip(oneLine(e.Item.Description()), 60))
	}
	return w.Flush()
}

// tellFailed names the backends whose tools are missing. It is an error if all
// of them are.
func (f *flags) tellFailed(a *app) error {
	all := enabled(a.set.Status())
	sick := 0
	for _, s := range all {
		if s.Answered && !well(s) {
			sick++
			fmt.Fprintf(f.err, "gateway: backend %s: %s\n", s.Name, a.problem(s))
		}
	}
	if sick > 0 && sick == len(all) {
		return hinted{fmt.Errorf("no backend could be asked"), "gateway check says more"}
	}
	return nil
}
