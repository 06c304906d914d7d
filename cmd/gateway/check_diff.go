package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/config"
	"mcpgateway/internal/reload"
)

// printDiff prints the changes that a reload would make in the gateway that runs, or last ran, with
// the same file. It starts no backend. It returns an error if there is no file or a reload would
// refuse the file. A missing or unusable record is reported on stderr and is not an error.
func printDiff(ctx context.Context, s *configSource) error {
	loaded, err := s.load(ctx)
	if err != nil {
		return err
	}
	if _, err := reload.LoadCertificate(loaded, loaded.Config.TLS); err != nil {
		return err
	}
	if loaded.Source == "" {
		return hintedError{errors.New("no configuration to compare"), "name a file with --config"}
	}
	printSource(s.err, loaded.Source)
	for _, w := range loaded.Warnings {
		fmt.Fprintf(s.err, "gateway: %s\n", w)
	}
	before, err := findRunningConfig(loaded.Config, loaded.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := reload.CheckNotEmptied(loaded, 1); err != nil {
			return err // an emptied file no longer contains the state directory of the record
		}
		printError(s.err,
			"the file is valid; no gateway has recorded a run with this file, "+
				"so there is nothing to compare",
			"the record is in the state directory that the gateway was started with; "+
				"if the key state has changed since then, name the old directory with --state")
		return nil
	case err != nil:
		fmt.Fprintf(s.err, "gateway: the file is valid; the record of the last run "+
			"with this file cannot be used: %v\n", err)
		return nil
	}
	at := before.Time.Local().Format(time.DateTime + " MST")
	if before.HasExited() {
		fmt.Fprintf(s.err, "gateway: no gateway runs with this file. The file is compared with "+
			"the configuration that the last one (process %d, ended) loaded at %s\n",
			before.PID, at)
	} else {
		if err := reload.CheckNotEmptied(loaded, len(before.Backends)); err != nil {
			return err
		}
		fmt.Fprintf(s.err, "gateway: the file is compared with the configuration "+
			"that the gateway (process %d) loaded at %s\n", before.PID, at)
	}
	changes := before.Diff(loaded.Config, append(before.Flags, s.flagKeys()...)...)
	if changes.IsEmpty() {
		fmt.Fprintln(s.err, "gateway: nothing would change")
		return nil
	}
	return printChanges(s.out, changes)
}

// findRunningConfig returns the record of the gateway that runs, or last ran, with a file. If the
// state directory of the configuration has no record, the key state may have changed.
// findRunningConfig then also looks for the record of a running gateway in the default state
// directory. The error is fs.ErrNotExist if there is no record.
func findRunningConfig(c *config.Config, file string) (*reload.RunningConfig, error) {
	a, err := reload.ReadRunningConfig(c.StateDir, file)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	dir := config.DefaultStateDir(os.LookupEnv)
	if a, err := reload.ReadRunningConfig(dir, file); err == nil && !a.HasExited() {
		return a, nil
	}
	return nil, err
}

// printChanges prints one row for each backend and each other key that differs.
func printChanges(out io.Writer, c config.Changes) error {
	return printChangeRows(out, changeRows(c, true))
}

// printChangeRows prints the rows as a table.
func printChangeRows(out io.Writer, rows []adminapi.ConfigChange) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tCHANGE\tDETAIL")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", printable(r.What), r.Change, printable(r.Detail))
	}
	return w.Flush()
}

// changeEffects are the effects of a change of a backend, before and after the change was made.
var changeEffects = map[bool]map[config.Effect]string{
	true: {config.Restarts: "restarts it", config.Starts: "starts it", config.Stops: "stops it",
		config.StaysDown: "it stays down"},
	false: {config.Restarts: "restarted", config.Starts: "started", config.Stops: "stopped",
		config.StaysDown: "not started"},
}

// changeRows returns a row for each backend and each other key that differs. planned is true if the
// changes are not made yet.
func changeRows(c config.Changes, planned bool) []adminapi.ConfigChange {
	rows := []adminapi.ConfigChange{}
	add := func(change string, names []string) {
		for _, name := range names {
			detail := ""
			if c.IsInactive(name) {
				detail = "not enabled"
			}
			rows = append(rows, adminapi.ConfigChange{
				What: "backend " + name, Change: change, Detail: detail})
		}
	}
	add("added", c.Added)
	add("removed", c.Removed)
	add("enabled", c.Enabled)
	add("disabled", c.Disabled)
	for _, b := range c.Changed {
		detail := strings.Join(b.Keys, ", ")
		if effect := changeEffects[planned][b.Effect]; effect != "" {
			detail += "; " + effect
		}
		rows = append(rows, adminapi.ConfigChange{
			What: "backend " + b.Name, Change: "changed", Detail: detail})
	}
	for _, name := range c.Held {
		rows = append(rows, adminapi.ConfigChange{What: "backend " + name,
			Change: "misconfigured", Detail: "keeps its old entry, with the new filters"})
	}
	add("moved", c.Moved)
	keys := slices.Concat(c.Applied, c.NeedRestart)
	slices.Sort(keys)
	for _, key := range keys {
		detail := ""
		if slices.Contains(c.NeedRestart, key) {
			detail = "needs a restart"
		}
		rows = append(rows, adminapi.ConfigChange{What: key, Change: "changed", Detail: detail})
	}
	return rows
}
