package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpgateway/internal/doctor"
	"mcpgateway/internal/logging"
)

// doctorFlags are the flags of the command doctor.
type doctorFlags struct {
	timeout          startTimeout
	offline, noStart bool
	verbose, asJSON  bool
	report           output
}

func doctorCommand(c *cli) *cobra.Command {
	var flags doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong, and say what to do",
		Long: `doctor checks everything that the gateway needs: the configuration and why it is used,
variables, programs and their versions, the state directory, running gateways, the address,
the audit file, the configurations of clients, and the backends, each of which it starts
once. It changes nothing.

Each finding is ok, a note, a warning or a problem, and says what to do next. The exit code
is 1 if there is a problem. Without -v the findings that are ok are only counted.

--report writes a report for a bug report: versions, findings, the configuration and the
last log lines of running gateways. It has no secrets and no values of variables; read it
before you publish it.

    gateway doctor
    gateway doctor --offline --report report.txt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd.Context(), c)
		},
	}
	flags.timeout.addFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&flags.offline, "offline", false, "start no backend")
	f.BoolVar(&flags.noStart, "no-start", false, "the same as --offline")
	f.BoolVarP(&flags.verbose, "verbose", "v", false, "also print the findings that are ok")
	f.BoolVar(&flags.asJSON, "json", false, "print a JSON object")
	f.StringVar(&flags.report.path, "report", "",
		"write a report without secrets to `FILE`; - = stdout")
	f.BoolVar(&flags.report.force, "force", false, "with --report: overwrite FILE")
	return cmd
}

func (f *doctorFlags) run(ctx context.Context, c *cli) error {
	if f.report.path == "" && f.report.force {
		return usageErrorOf("gateway doctor", errors.New("--force needs --report"))
	}
	toStdout := f.report.path == "-"
	if f.report.path != "" && !toStdout {
		if err := f.report.validate(); err != nil {
			return err
		}
	}
	run := &doctorRun{cli: c, mask: logging.NewMask()}
	run.checkAll(ctx)
	if !f.offline && !f.noStart {
		run.checkBackends(ctx, f.timeout)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	run.sort()
	var err error
	if toStdout {
		_, err = c.out.WriteString(run.report(ctx))
	} else {
		if f.report.path != "" {
			if err := f.report.writeTo(c.out, []byte(run.report(ctx))); err != nil {
				return err
			}
			fmt.Fprintf(c.err, "gateway: the report is in %s\n", printable(f.report.path))
		}
		err = run.print(f.verbose, f.asJSON)
	}
	if err == nil && doctor.Count(run.found, doctor.Problem) > 0 {
		return errReported
	}
	return err
}

// sort sorts the findings by subject, and makes their texts safe to print.
func (r *doctorRun) sort() {
	slices.SortStableFunc(r.found, func(a, b doctor.DoctorFinding) int {
		return slices.Index(doctor.Subjects, a.Subject) - slices.Index(doctor.Subjects, b.Subject)
	})
	for i := range r.found {
		one := &r.found[i]
		one.Text, one.Next = maskedLine(r.mask, one.Text), maskedLine(r.mask, one.Next)
	}
}

// print prints the findings.
func (r *doctorRun) print(verbose, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(r.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Findings []doctor.DoctorFinding `json:"findings"`
			Problems int                    `json:"problems"`
			Warnings int                    `json:"warnings"`
		}{r.found, doctor.Count(r.found, doctor.Problem), doctor.Count(r.found, doctor.Warning)})
	}
	_, err := r.out.WriteString(findingsText(r.found, verbose))
	return err
}

// findingsText returns findings, grouped by subject. If verbose is false, those that are ok are
// only counted.
func findingsText(all []doctor.DoctorFinding, verbose bool) string {
	var b strings.Builder
	for _, subject := range doctor.Subjects {
		var lines []string
		ok := 0
		for _, f := range all {
			switch {
			case f.Subject != subject:
				continue
			case f.Level == doctor.OK:
				ok++
				if !verbose {
					continue
				}
			}
			lines = append(lines, fmt.Sprintf("  %-7s  %s", f.Level, f.Text))
			if f.Next != "" {
				lines = append(lines, "           next: "+f.Next)
			}
		}
		switch {
		case lines == nil && ok == 0:
			continue
		case ok > 0 && !verbose:
			fmt.Fprintf(&b, "%s: %d ok\n", subject, ok)
		default:
			fmt.Fprintf(&b, "%s\n", subject)
		}
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	fmt.Fprintf(&b, "\nproblems: %d, warnings: %d, notes: %d, ok: %d\n",
		doctor.Count(all, doctor.Problem), doctor.Count(all, doctor.Warning),
		doctor.Count(all, doctor.Note), doctor.Count(all, doctor.OK))
	return b.String()
}
