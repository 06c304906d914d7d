package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/reload"
)

func checkCommand(c *cli) *cobra.Command {
	diff := false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Start every backend once and print its state",
		Long: `check loads and validates the configuration, starts every backend, lists its
tools, and prints one row per backend. The exit code is 0 only if all backends work. The
column PROBLEM also contains remarks about working backends, such as a glob that matches
nothing, a tool that was omitted because it is unusable, or a tool that model APIs may
reject. Below the rows, check lists the names whose backend has changed since the last run
of gateway serve with the same file. A run of check does not change the record of these
names.

With --diff, check starts no backend. It loads and validates the configuration and prints the
changes that a reload would make in the gateway that runs with the same file. The exit code
is 0 if the file is valid. check compares the file with the record that each gateway writes to
the state directory, and uses its own environment variables instead of the gateway's.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if diff {
				return c.printDiff()
			}
			return c.withStartedBackends(cmd.Context(), c.printSource, c.printStatus)
		},
	}
	c.timeoutFlag(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false,
		"start no backend; print the changes that a reload would make in the running gateway")
	return cmd
}

// withStartedBackends calls begin, starts every enabled backend once, and calls do when each of
// them has listed its tools or failed, or after c.timeout. It returns the error of do, or an error
// if the backends were not started or ctx is done.
func (c *cli) withStartedBackends(
	ctx context.Context, begin func(*app), do func(*app) error,
) error {
	if err := c.checkTimeout(); err != nil {
		return err
	}
	a, err := c.open(runMode{noRestart: true, ignoreCache: true}, c.quietLog, stdioOnly)
	if err != nil {
		return err
	}
	if _, err := reload.LoadCertificate(a.Loaded, a.Config.TLS); err != nil {
		a.close()
		return err
	}
	return a.run(ctx, func(ctx context.Context) error {
		begin(a)
		c.printWarnings(a)
		if err := c.startBackends(ctx, a); err != nil {
			return err
		}
		return do(a)
	})
}

// startBackends starts the backends and waits until each has listed its tools or failed, for at
// most c.timeout. It shows the backends that it waits for on stderr. After the timeout it sets
// a.timedOutAfter and returns nil. If ctx is done, it returns errInterrupted.
func (c *cli) startBackends(ctx context.Context, a *app) error {
	a.backends.Start()
	p := progress{w: c.err, terminal: isTerminal(c.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	timeout := c.timeoutChannel()
	for {
		v := a.backends.View()
		if v.Complete {
			return nil
		}
		select {
		case <-v.Changed:
		case <-tick.C:
			p.show(enabled(a.backends.Status()))
		case <-timeout:
			a.timedOutAfter = c.timeout
			return nil
		case <-ctx.Done():
			return errInterrupted
		}
	}
}

// printWarnings prints the warnings about the configuration.
func (c *cli) printWarnings(a *app) {
	for _, w := range a.Warnings {
		fmt.Fprintf(c.err, "gateway: %s\n", a.maskedLine(w))
	}
}

// maskedLine returns a text, possibly from a backend, on one line and with secrets masked. It masks
// before and after it changes spaces, because a secret may contain spaces.
func (a *app) maskedLine(text string) string {
	return a.mask.String(oneLine(a.mask.String(text)))
}

// maskedName returns a name from a backend with secrets masked and control characters replaced.
func (a *app) maskedName(name string) string { return printable(a.mask.String(name)) }

// problemText describes the problem of a backend that does not work.
func (a *app) problemText(s backends.Status) string {
	if !s.Settled && a.timedOutAfter > 0 {
		problem := fmt.Sprintf("it did not answer within %v; increase --timeout", a.timedOutAfter)
		if s.Err != nil {
			problem += "; " + s.Err.Error()
		}
		return a.maskedLine(problem)
	}
	if s.Err == nil {
		return string(s.State)
	}
	return a.maskedLine(s.Err.Error())
}

// shownRemarks bounds the omitted, the repaired and the suspicious entries of a backend that check
// prints.
const shownRemarks = 10

// remarks returns the remarks about a working backend; "" = none.
func (a *app) remarks(s backends.Status) string {
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
	for _, f := range s.Omitted[:min(len(s.Omitted), shownRemarks)] {
		all = append(all, "left out "+f.Item+": "+f.Problem)
	}
	if more := len(s.Omitted) - shownRemarks; more > 0 {
		all = append(all, fmt.Sprintf("left out %d more entries", more))
	}
	for _, f := range s.Repaired[:min(len(s.Repaired), shownRemarks)] {
		all = append(all, "repaired "+f.Item+": "+f.Problem)
	}
	if more := len(s.Repaired) - shownRemarks; more > 0 {
		all = append(all, fmt.Sprintf("repaired %d more entries", more))
	}
	for _, f := range s.Suspicious[:min(len(s.Suspicious), shownRemarks)] {
		all = append(all, f.Item+": "+f.Problem)
	}
	if more := len(s.Suspicious) - shownRemarks; more > 0 {
		all = append(all, fmt.Sprintf("remarks about %d more entries", more))
	}
	return a.maskedLine(strings.Join(all, "; "))
}

// enabled returns the backends that are not disabled.
func enabled(all []backends.Status) []backends.Status {
	return slices.DeleteFunc(all, func(s backends.Status) bool {
		return s.State == backends.Disabled
	})
}

func isHealthy(s backends.Status) bool {
	return s.Settled && s.State == backends.Ready && s.Err == nil
}

// printStatus prints one row per backend, a row with totals, and the names whose backend has
// changed. It returns an error if no backend is enabled, or if an enabled backend does not work.
func (c *cli) printStatus(a *app) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BACKEND\tSTATE\tTOOLS\tPROMPTS\tRESOURCES\tSERVER\tREVISION\tTIME\tPROBLEM")
	failed := 0
	all := a.backends.Status()
	for _, s := range all {
		if s.State == backends.Disabled {
			fmt.Fprintf(w, "%s\tdisabled\t-\t-\t-\t-\t-\t-\t\n", s.Name)
			continue
		}
		state, counts, problem, took := "ok", countColumns(s), a.remarks(s), s.StartupTime
		if !isHealthy(s) {
			failed++
			state, counts, problem = "failed", "-\t-\t-", a.problemText(s)
			if s.State == backends.Misconfigured {
				state = string(s.State)
			}
			if !s.Settled {
				took = a.timedOutAfter
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, state, counts,
			orDash(a.maskedLine(s.Server)), orDash(a.maskedLine(s.Revision)),
			took.Round(time.Millisecond), problem)
	}
	if t := totalOf(a.backends.View().Snapshot); len(enabled(a.backends.Status())) > 0 {
		fmt.Fprintf(w, "total\t\t%d\t%d\t%d\t\t\t\t%s in the lists\n",
			t.counts[catalog.Tools], t.counts[catalog.Prompts],
			t.counts[catalog.Resources]+t.counts[catalog.Templates], formatSize(t.bytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, line := range a.transferLines(a.backends.View().MovesSince(a.previousNames)) {
		fmt.Fprintln(c.out, line)
	}
	all = enabled(all)
	if len(all) == 0 {
		return a.noBackendError()
	}
	if failed > 0 {
		return hintedError{
			fmt.Errorf("%d of %d backends failed", failed, len(all)),
			"gateway check --log-level debug also shows the output of the programs",
		}
	}
	return nil
}

// countColumns returns the number of tools, prompts and resources of a backend as three columns.
// Resource templates count as resources.
func countColumns(s backends.Status) string {
	return fmt.Sprintf("%d\t%d\t%d", s.Counts[catalog.Tools], s.Counts[catalog.Prompts],
		s.Counts[catalog.Resources]+s.Counts[catalog.Templates])
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
