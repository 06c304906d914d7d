package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
)

func checkCommand(c *cli) *cobra.Command {
	diff := false
	var timeout startTimeout
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Start every backend once and print its state",
		Long: `check loads and validates the configuration, starts every backend, lists its
tools, and prints one row per backend. The exit code is 0 only if all backends work. The
column PROBLEM also contains remarks about working backends, such as a glob that matches
nothing, a tool that was omitted because it is unusable, a tool that model APIs may reject,
or tools that are new or have changed since they were approved (gateway approve). Below the rows, check lists the names whose backend has changed since the last run
of gateway serve with the same file. A run of check does not change the record of these
names.

With --diff, check starts no backend. It loads and validates the configuration and prints the
changes that a reload would make in the gateway that runs with the same file. The exit code
is 0 if the file is valid. check compares the file with the record that each gateway writes to
the state directory, and uses its own environment variables instead of the gateway's.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if diff {
				return printDiff(cmd.Context(), &c.source)
			}
			return withStartedBackends(cmd.Context(), c, timeout, true, printStatus)
		},
	}
	timeout.addFlag(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false,
		"start no backend; print the changes that a reload would make in the running gateway")
	return cmd
}

// shownRemarks bounds the omitted, the repaired and the suspicious entries of a backend that check
// prints.
const shownRemarks = 10

// remarks returns the remarks about a working backend; "" = none.
func remarks(mask *logging.Mask, s backends.Status) string {
	var all []string
	if len(s.Unmatched) > 0 {
		what := "no tool of that name"
		isOther := func(glob string) bool { return !strings.HasPrefix(glob, "tools.") }
		if slices.ContainsFunc(s.Unmatched, isOther) {
			what = "nothing of that name"
		}
		all = append(all, strings.Join(s.Unmatched, ", ")+": "+what)
	}
	if s.ContainerWarning != "" {
		all = append(all, s.ContainerWarning)
	}
	all = append(all, pinRemarks(s)...)
	for _, list := range []struct {
		before, more string
		issues       []catalog.Issue
	}{
		{"left out ", "left out %d more entries", s.Omitted},
		{"repaired ", "repaired %d more entries", s.Repaired},
		{"", "remarks about %d more entries", s.Suspicious},
	} {
		for _, f := range list.issues[:min(len(list.issues), shownRemarks)] {
			all = append(all, list.before+f.Item+": "+f.Problem)
		}
		if more := len(list.issues) - shownRemarks; more > 0 {
			all = append(all, fmt.Sprintf(list.more, more))
		}
	}
	return maskedLine(mask, strings.Join(all, "; "))
}

// pinRemarks returns the remarks about tools that are not approved.
func pinRemarks(s backends.Status) (all []string) {
	effect := ""
	if s.Pins.Mode == config.PinBlock {
		effect = ", hidden"
	}
	for _, list := range []struct {
		what  string
		tools []string
	}{{"new tools", s.Pins.New}, {"changed tools", s.Pins.Changed}} {
		shown := list.tools[:min(len(list.tools), shownRemarks)]
		if len(shown) == 0 {
			continue
		}
		text := list.what + " (not approved" + effect + "): " + strings.Join(shown, ", ")
		if more := len(list.tools) - len(shown); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, text)
	}
	if all != nil {
		all = append(all, "gateway approve "+s.Name+" shows and accepts changes")
	}
	return all
}

// printStatus prints one row per backend, a row with totals, and the names whose backend has
// changed. It returns an error if no backend is enabled, or if an enabled backend does not work.
func printStatus(o *oneShot) error {
	w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BACKEND\tSTATE\tTOOLS\tPROMPTS\tRESOURCES\tSERVER\tREVISION\tTIME\tPROBLEM")
	failed := 0
	all := o.backends.Status()
	for _, s := range all {
		if s.State == backends.Disabled {
			fmt.Fprintf(w, "%s\tdisabled\t-\t-\t-\t-\t-\t-\t\n", s.Name)
			continue
		}
		state, counts, problem, took := "ok", countColumns(s), remarks(o.mask, s), s.StartupTime
		if !isHealthy(s) {
			failed++
			state, counts, problem = "failed", "-\t-\t-", o.problemText(s)
			if s.State == backends.Misconfigured || s.State == backends.NeedsLogin {
				state = string(s.State)
			}
			if !s.Settled {
				took = o.timedOutAfter
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, state, counts,
			orDash(maskedLine(o.mask, s.Server)), orDash(maskedLine(o.mask, s.Revision)),
			took.Round(time.Millisecond), problem)
	}
	if t := totalOf(o.backends.View().Snapshot); len(enabled(o.backends.Status())) > 0 {
		fmt.Fprintf(w, "total\t\t%d\t%d\t%d\t\t\t\t%s in the lists\n",
			t.counts[catalog.Tools], t.counts[catalog.Prompts],
			t.counts[catalog.Resources]+t.counts[catalog.Templates], formatSize(t.bytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, line := range transferLines(o.mask, o.backends.View().MovesSince(o.previousNames)) {
		fmt.Fprintln(o.out, line)
	}
	for _, line := range approvedOwnerLines(o.mask, o.backends.MovedNames()) {
		fmt.Fprintln(o.out, line)
	}
	all = enabled(all)
	if len(all) == 0 {
		return noBackendError(o.app)
	}
	if failed > 0 {
		return hintedError{
			fmt.Errorf("%d of %d backends failed", failed, len(all)), checkHint(all, o.isProgram),
		}
	}
	return nil
}

// isProgram reports whether a backend is a program that the gateway starts.
func (o *oneShot) isProgram(name string) bool {
	return slices.ContainsFunc(o.Config.Backends,
		func(b config.Backend) bool { return b.Name == name && b.Command != "" })
}

// checkHint returns advice for the backends that do not work; "" = their rows contain the advice.
// Programs come first, then servers with a url, then logins.
func checkHint(all []backends.Status, isProgram func(name string) bool) (hint string) {
	urlFailed := false
	for _, s := range all {
		switch {
		case isHealthy(s), s.State == backends.Misconfigured:
		case s.State == backends.NeedsLogin && hint == "":
			hint = "gateway login " + s.Name
		case s.State == backends.NeedsLogin:
			hint = "gateway login NAME, for each backend that needs a login"
		case !isProgram(s.Name):
			urlFailed = true
		default:
			return "gateway check --log-level debug also shows the output of the programs"
		}
	}
	if urlFailed {
		return "check the url of each backend that failed, and that its server runs"
	}
	return hint
}

// countColumns returns the number of tools, prompts and resources of a backend as three columns.
// Resource templates count as resources.
func countColumns(s backends.Status) string {
	return fmt.Sprintf("%d\t%d\t%d", s.Counts[catalog.Tools], s.Counts[catalog.Prompts],
		s.Counts[catalog.Resources]+s.Counts[catalog.Templates])
}
