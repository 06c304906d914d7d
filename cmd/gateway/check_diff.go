package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/reload"
)

// printDiff says what a reload would change for the gateway that runs with the same file. It starts
// nothing.
func (c *cli) printDiff() error {
	loaded, err := c.loadConfig()
	if err != nil {
		return err
	}
	if _, err := reload.LoadCertificate(loaded, loaded.Config.TLS); err != nil {
		return err
	}
	if loaded.Source == "" {
		return hintedError{errors.New("there is no configuration to compare"), "name a file with --config"}
	}
	c.printSource(&app{Loaded: loaded})
	for _, w := range loaded.Warnings {
		fmt.Fprintf(c.err, "gateway: %s\n", w)
	}
	before, err := findRunningConfig(loaded.Config, loaded.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := reload.CheckNotEmptied(loaded, 1); err != nil {
			return err // the file said where the record is, perhaps
		}
		printError(c.err, "it is valid; no gateway has left a record of having run with it, so there is nothing to compare it with",
			"the record is in the directory of state that was in force when the gateway started; if that is another now, name it with --state")
		return nil
	case err != nil:
		fmt.Fprintf(c.err, "gateway: it is valid; the record of the gateway that ran with it cannot be used: %v\n", err)
		return nil
	}
	at := before.Time.Local().Format(time.DateTime + " MST")
	if before.HasExited() {
		fmt.Fprintf(c.err, "gateway: no gateway runs with this file; the last one (process %d) has ended: compared with what it loaded at %s\n", before.PID, at)
	} else {
		if err := reload.CheckNotEmptied(loaded, len(before.Backends)); err != nil {
			return err
		}
		fmt.Fprintf(c.err, "gateway: compared with what the gateway of process %d loaded at %s\n", before.PID, at)
	}
	changes := before.Diff(loaded.Config, append(before.Flags, c.flagKeys()...)...)
	if changes.IsEmpty() {
		fmt.Fprintln(c.err, "gateway: nothing would change")
		return nil
	}
	return printChanges(c.out, changes)
}

// findRunningConfig returns the record of the gateway that runs with a file. If there is none where state: says, which may
// have been changed, one of a gateway that runs is looked for at the default place.
func findRunningConfig(c *config.Config, file string) (*reload.RunningConfig, error) {
	a, err := reload.ReadRunningConfig(c.StateDir, file)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if a, err := reload.ReadRunningConfig(config.DefaultStateDir(os.LookupEnv), file); err == nil && !a.HasExited() {
		return a, nil
	}
	return nil, err
}

// printChanges prints a row for each thing that differs.
func printChanges(out io.Writer, c config.Changes) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tCHANGE\tDETAIL")
	rows := func(change string, names []string) {
		for _, name := range names {
			detail := ""
			if c.IsInactive(name) {
				detail = "not enabled"
			}
			fmt.Fprintf(w, "backend %s\t%s\t%s\n", printable(name), change, detail)
		}
	}
	rows("added", c.Added)
	rows("removed", c.Removed)
	rows("enabled", c.Enabled)
	rows("disabled", c.Disabled)
	for _, b := range c.Changed {
		detail := strings.Join(b.Keys, ", ")
		if effect := map[config.Effect]string{
			config.Restarts: "restarts it", config.Starts: "starts it",
			config.Stops: "stops it", config.StaysDown: "it stays down",
		}[b.Effect]; effect != "" {
			detail += "; " + effect
		}
		fmt.Fprintf(w, "backend %s\tchanged\t%s\n", printable(b.Name), printable(detail))
	}
	for _, name := range c.Held {
		fmt.Fprintf(w, "backend %s\tmisconfigured\tits entry of before stays in force; its filters are taken over\n", printable(name))
	}
	rows("moved", c.Moved)
	for _, key := range slices.Sorted(slices.Values(append(slices.Clone(c.Applied), c.NeedRestart...))) {
		detail := ""
		if slices.Contains(c.NeedRestart, key) {
			detail = "needs a restart"
		}
		fmt.Fprintf(w, "%s\tchanged\t%s\n", printable(key), detail)
	}
	return w.Flush()
}
