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

func checkCommand(f *flags) *cobra.Command {
	diff := false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Start every backend once and say how each is",
		Long: `check loads and validates the configuration, starts every backend, lists its tools, and
prints one row for each. It exits with 0 only if all are well. Under PROBLEM stands also what
is odd about one that is: a glob that matches nothing, a tool left out as unusable, or
one that model APIs may refuse. Below the rows are the names that belong to another backend than
when gateway serve last ran with the same file. A run of check does not change that record.

With --diff it starts none. It loads and validates the configuration and prints what a
gateway that runs with the same file would change if it loaded it now, as it does when the
file changes; it exits with 0 if the file is valid. It compares with the record that each gateway
leaves in the directory of state, and reads variables from the environment that it has itself.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if diff {
				return f.printDiff()
			}
			return f.withAll(cmd.Context(), f.sayFile, f.printStatus)
		},
	}
	f.timeoutFlag(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false, "start no backend; say what a running gateway would change if it loaded the file now")
	return cmd
}

// withAll starts every backend once, and does something when each has answered; say is
// called before.
func (f *flags) withAll(ctx context.Context, say func(*app), do func(*app) error) error {
	if err := f.checkTimeout(); err != nil {
		return err
	}
	a, err := f.open(mode{once: true, anew: true}, f.quiet, indoors)
	if err != nil {
		return err
	}
	if _, err := reload.LoadCertificate(a.Loaded, a.Config.TLS); err != nil {
		a.close()
		return err
	}
	return a.run(ctx, func(ctx context.Context) error {
		say(a)
		f.warn(a)
		if err := f.startAll(ctx, a); err != nil {
			return err
		}
		return do(a)
	})
}

// startAll starts the backends and waits until each has answered or failed, at most for f.timeout;
// meanwhile stderr says for whom it waits.
func (f *flags) startAll(ctx context.Context, a *app) error {
	a.set.Start()
	p := progress{w: f.err, terminal: isTerminal(f.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	late := f.limit()
	for {
		v := a.set.View()
		if v.Complete {
			return nil
		}
		select {
		case <-v.Changed:
		case <-tick.C:
			p.show(enabled(a.set.Status()))
		case <-late:
			a.waited = f.timeout
			return nil
		case <-ctx.Done():
			return errInterrupted
		}
	}
}

// warn says what is odd about the configuration.
func (f *flags) warn(a *app) {
	for _, w := range a.Warnings {
		fmt.Fprintf(f.err, "gateway: %s\n", a.line(w))
	}
}

// line returns a text, which a backend may have written, on one line and without secrets. It masks
// before spaces are changed, because a secret may have some, and after, for the same reason.
func (a *app) line(text string) string { return a.mask.String(oneLine(a.mask.String(text))) }

// named returns a name that a backend has given, without secrets and what would move a terminal's cursor.
func (a *app) named(name string) string { return plain(a.mask.String(name)) }

// problem says what is wrong with a backend that is not well.
func (a *app) problem(s backends.Status) string {
	if !s.Settled && a.waited > 0 {
		problem := fmt.Sprintf("it did not answer within %v; raise that with --timeout", a.waited)
		if s.Err != nil {
			problem += "; " + s.Err.Error()
		}
		return a.line(problem)
	}
	if s.Err == nil {
		return string(s.State)
	}
	return a.line(s.Err.Error())
}

// shown bounds how much check names of what is left out of one backend.
const shown = 10

// remarks says what is odd about a backend that is well.
func (a *app) remarks(s backends.Status) string {
	var all []string
	if len(s.Unmatched) > 0 {
		what := "no tool of that name"
		if slices.ContainsFunc(s.Unmatched, func(glob string) bool { return !strings.HasPrefix(glob, "tools.") }) {
			what = "nothing of that name"
		}
		all = append(all, strings.Join(s.Unmatched, ", ")+": "+what)
	}
	if s.ContainerWarning != "" {
		all = append(all, s.ContainerWarning)
	}
	for _, f := range s.Omitted[:min(len(s.Omitted), shown)] {
		all = append(all, "left out "+f.Item+": "+f.Problem)
	}
	if more := len(s.Omitted) - shown; more > 0 {
		all = append(all, fmt.Sprintf("left out %d more", more))
	}
	for _, f := range s.Repaired[:min(len(s.Repaired), shown)] {
		all = append(all, "repaired "+f.Item+": "+f.Problem)
	}
	if more := len(s.Repaired) - shown; more > 0 {
		all = append(all, fmt.Sprintf("repaired %d more", more))
	}
	for _, f := range s.Suspicious[:min(len(s.Suspicious), shown)] {
		all = append(all, f.Item+": "+f.Problem)
	}
	if more := len(s.Suspicious) - shown; more > 0 {
		all = append(all, fmt.Sprintf("so it is with %d more", more))
	}
	return a.line(strings.Join(all, "; "))
}

// enabled returns the backends that are not disabled.
func enabled(all []backends.Status) []backends.Status {
	return slices.DeleteFunc(all, func(s backends.Status) bool { return s.State == backends.Disabled })
}

func well(s backends.Status) bool { return s.Settled && s.State == backends.Ready && s.Err == nil }

// printStatus prints the rows; the error says that not all are well.
func (f *flags) printStatus(a *app) error {
	w := tabwriter.NewWriter(f.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BACKEND\tSTATE\tTOOLS\tPROMPTS\tRESOURCES\tSERVER\tREVISION\tTIME\tPROBLEM")
	sick := 0
	all := a.set.Status()
	for _, s := range all {
		if s.State == backends.Disabled {
			fmt.Fprintf(w, "%s\tdisabled\t-\t-\t-\t-\t-\t-\t\n", s.Name)
			continue
		}
		state, counts, problem, took := "ok", countsOf(s), a.remarks(s), s.StartupTime
		if !well(s) {
			sick++
			state, counts, problem = "failed", "-\t-\t-", a.problem(s)
			if s.State == backends.Misconfigured {
				state = string(s.State)
			}
			if !s.Settled {
				took = a.waited
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, state, counts, dash(a.line(s.Server)), dash(a.line(s.Revision)),
			took.Round(time.Millisecond), problem)
	}
	if t := totalOf(a.set.View().Snapshot); len(enabled(a.set.Status())) > 0 {
		fmt.Fprintf(w, "total\t\t%d\t%d\t%d\t\t\t\t%s in the lists\n", t.counts[catalog.Tools], t.counts[catalog.Prompts],
			t.counts[catalog.Resources]+t.counts[catalog.Templates], size(t.bytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, line := range a.transferLines(a.set.View().MovesSince(a.lastNames)) {
		fmt.Fprintln(f.out, line)
	}
	all = enabled(all)
	if len(all) == 0 {
		return a.noBackend()
	}
	if sick > 0 {
		return hinted{fmt.Errorf("%d of %d backends failed", sick, len(all)), "gateway check --log-level debug shows all that they say"}
	}
	return nil
}

// countsOf returns how much a backend lists, in three columns. Templates of
// resources count as resources.
func countsOf(s backends.Status) string {
	return fmt.Sprintf("%d\t%d\t%d", s.Counts[catalog.Tools], s.Counts[catalog.Prompts],
		s.Counts[catalog.Resources]+s.Counts[catalog.Templates])
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
