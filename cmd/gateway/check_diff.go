package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"mcpgateway/config"
)

// printDiff says what a reload would change for the gateway that runs with the same file. It starts
// nothing.
func (f *flags) printDiff() error {
	loaded, err := f.load(f.config)
	if err != nil {
		return err
	}
	if _, err := loadCertificate(loaded.Source, loaded.Config.TLS); err != nil {
		return err
	}
	if loaded.Source == "" {
		return hinted{errors.New("there is no configuration to compare"), "name a file with --config"}
	}
	f.sayFile(&app{Loaded: loaded})
	for _, w := range loaded.Warnings {
		fmt.Fprintf(f.err, "gateway: %s\n", w)
	}
	before, err := readApplied(loaded.Config.StateDir, loaded.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintln(f.err, "gateway: it is valid; no gateway has left a record of having run with it, so there is nothing to compare it with")
		return nil
	case err != nil:
		fmt.Fprintf(f.err, "gateway: it is valid; the record of the gateway that ran with it cannot be used: %v\n", err)
		return nil
	}
	fmt.Fprintf(f.err, "gateway: compared with what the gateway of process %d loaded at %s\n", before.PID, before.Time.Local().Format(time.DateTime))
	changes := before.Diff(loaded.Config, append(before.Flags, f.given()...)...)
	if changes.None() {
		fmt.Fprintln(f.err, "gateway: nothing would change")
		return nil
	}
	return printChanges(f.out, changes)
}

// printChanges prints a row for each thing that differs.
func printChanges(out io.Writer, c config.Changes) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tCHANGE\tDETAIL")
	rows := func(change string, names []string) {
		for _, name := range names {
			detail := ""
			if c.IsOff(name) {
				detail = "not enabled"
			}
			fmt.Fprintf(w, "backend %s\t%s\t%s\n", plain(name), change, detail)
		}
	}
	rows("added", c.Added)
	rows("removed", c.Removed)
	rows("enabled", c.Enabled)
	rows("disabled", c.Disabled)
	for _, b := range c.Changed {
		detail := strings.Join(b.Keys, ", ")
		if !c.IsOff(b.Name) {
			detail += "; restarts it"
		}
		fmt.Fprintf(w, "backend %s\tchanged\t%s\n", plain(b.Name), plain(detail))
	}
	rows("moved", c.Moved)
	for _, key := range slices.Sorted(slices.Values(append(slices.Clone(c.Taken), c.Restart...))) {
		detail := ""
		if slices.Contains(c.Restart, key) {
			detail = "needs a restart"
		}
		fmt.Fprintf(w, "%s\tchanged\t%s\n", plain(key), detail)
	}
	return w.Flush()
}
