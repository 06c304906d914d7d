package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/auditlog"
	"mcpgateway/internal/config"
)

// auditFlags are the flags of the command audit.
type auditFlags struct {
	since, until string
	slower       time.Duration
	values       map[string]*[]string // flags that take several values, by name
	follow       bool
	json         bool
	stats        bool
	slowest      bool
	by           string
	lines        int // -1 = not given
}

// Numbers of records that are printed without -n.
const (
	defaultLines       = 50
	defaultFollowLines = 10
)

func auditCommand(c *cli) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit [FILE...]",
		Short: "Print audit records: who called what, how long it took, and what failed",
		Long: `audit prints records of audit.file and of the files that were rotated before it,
compressed or not, in the order in which the calls ended. With FILE it reads exactly these
files: audit files, or logs with audit records.

Values may be patterns such as 'gh__*', and several values may be separated by commas.
--since and --until take durations (2h, 3d), times of day (14:30), dates (2026-11-29, or
2026-11-29T14:30), now, today or yesterday.

    gateway audit --outcome failed --since 2h
    gateway audit --since yesterday --until today --slowest
    gateway audit --stats --by tool
    gateway audit -f --backend github
    gateway audit show k3f9q2x7-1a7`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("lines") {
				f.lines = -1
			}
			return runAudit(cmd.Context(), c, &f, args)
		},
	}
	f.add(cmd)
	completeFlag(cmd, "backend", c.source.backendNames)
	completeFlag(cmd, "tool", c.source.toolNames)
	completeFlag(cmd, "principal", c.source.principalNames)
	completeFlag(cmd, "outcome", values(append([]string{auditlog.Failed}, auditlog.Outcomes...)...))
	completeFlag(cmd, "by", values(auditlog.Groupings...))
	cmd.AddCommand(auditShowCommand(c), auditVerifyCommand(c))
	for _, sub := range cmd.Commands() {
		sub.Args = asUsageErrors(sub.Args)
	}
	return cmd
}

// add adds the flags to the command.
func (f *auditFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "calls that ended at or after `TIME`")
	flags.StringVar(&f.until, "until", "", "calls that ended before `TIME`")
	flags.DurationVar(&f.slower, "slower", 0,
		"calls that took at least this `DURATION`, such as 500ms, including the time in queues")
	f.values = make(map[string]*[]string)
	for _, one := range [][2]string{
		{"client", "calls of the client `NAME`, or NAME/VERSION"},
		{"principal", "calls with the token `NAME`"},
		{"session", "calls of the session `ID`, or of sessions whose ids begin with it"},
		{"tool", "calls of the tool, prompt or URI `NAME`: as listed, or as the backend names it"},
		{"backend", "calls of the backend `NAME`"},
		{"outcome", "calls with this `OUTCOME`: " + auditlog.Failed + " or " +
			strings.Join(auditlog.Outcomes, ", ")},
		{"id", "calls with this `ID`: call id, or id of the client, backend or trace"},
		{"method", "requests of this `METHOD`: tools/call, prompts/get or resources/read"},
	} {
		f.values[one[0]] = flags.StringArray(one[0], nil, one[1])
	}
	flags.BoolVarP(&f.follow, "follow", "f", false, "continue with new records as they are written")
	flags.BoolVar(&f.json, "json", false,
		"print the records as they are in the file; with --stats print JSON")
	flags.IntVarP(&f.lines, "lines", "n", defaultLines, "print the last `N` records; 0 = all "+
		"(default 50, with --follow 10, with --json all)")
	flags.Lookup("lines").DefValue = "" // the usage names the defaults
	flags.BoolVar(&f.slowest, "slowest", false, "print the -n slowest calls, the slowest first")
	flags.BoolVar(&f.stats, "stats", false,
		"print calls, errors, percentiles of durations (within 1.6 %) and bytes")
	flags.StringVar(&f.by, "by", "", "with --stats, one line for each `VALUE` of: "+
		strings.Join(auditlog.Groupings, ", "))
}

// check returns an error if flags contradict each other.
func (f *auditFlags) check(files []string) error {
	problem := ""
	switch {
	case f.by != "" && !f.stats:
		problem = "--by needs --stats"
	case f.follow && f.stats:
		problem = "--stats does not end with --follow: leave one of them out"
	case f.follow && f.slowest:
		problem = "--slowest does not end with --follow: leave one of them out"
	case f.stats && f.slowest:
		problem = "--stats and --slowest print different things: leave one of them out"
	case f.follow && len(files) > 1:
		problem = "--follow reads one file"
	case f.follow && f.until != "":
		problem = "--follow has no end: leave --until out"
	case f.lines < -1:
		problem = "-n must not be negative: 0 prints all records"
	case f.slower < 0:
		problem = "--slower must not be negative"
	}
	if problem != "" {
		return usageErrorOf("gateway audit", errors.New(problem))
	}
	return nil
}

// query returns the query of the flags.
func (f *auditFlags) query(now time.Time) (*auditlog.Query, error) {
	q := &auditlog.Query{Slower: f.slower}
	var err error
	if q.Since, err = auditTime("--since", f.since, now); err != nil {
		return nil, err
	}
	if q.Until, err = auditTime("--until", f.until, now); err != nil {
		return nil, err
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return nil, usageErrorOf("gateway audit", fmt.Errorf(
			"--since %s is not before --until %s", f.since, f.until))
	}
	for name, to := range map[string]*[]string{
		"client": &q.Clients, "principal": &q.Principals, "session": &q.Sessions,
		"tool": &q.Tools, "backend": &q.Backends, "outcome": &q.Outcomes, "id": &q.IDs,
		"method": &q.Methods,
	} {
		for _, given := range *f.values[name] {
			for value := range strings.SplitSeq(given, ",") {
				if value = strings.TrimSpace(value); value != "" {
					*to = append(*to, value)
				}
			}
		}
		if len(*f.values[name]) > 0 && len(*to) == 0 {
			return nil, usageErrorOf("gateway audit", fmt.Errorf("--%s needs a value", name))
		}
	}
	return q, q.Check()
}

// runAudit runs the command audit.
func runAudit(ctx context.Context, c *cli, f *auditFlags, files []string) error {
	if err := f.check(files); err != nil {
		return err
	}
	q, err := f.query(time.Now())
	if unknown, is := errors.AsType[*auditlog.UnknownOutcomeError](err); is {
		return usageError{unknown, "the outcomes are: " +
			strings.Join(append(auditlog.Outcomes[:len(auditlog.Outcomes):len(auditlog.Outcomes)],
				auditlog.Failed), ", ")}
	}
	if err != nil {
		return asUsageError(err)
	}
	stats, err := auditlog.NewStats(f.by)
	if err != nil {
		return usageError{err, "--by takes: " + strings.Join(auditlog.Groupings, ", ")}
	}
	log, err := openAuditFiles(ctx, &c.source, files, f.follow)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &auditPrinter{out: c.out, err: c.err, flags: f}
	switch {
	case f.stats:
		err = p.printStats(ctx, log, q, stats)
	case f.slowest:
		err = p.printSlowest(ctx, log, q)
	default:
		err = p.printRecords(ctx, log, q)
	}
	if ctx.Err() != nil && f.follow {
		err = nil // the user has ended it
	}
	if err != nil {
		return auditReadError(err)
	}
	return p.reportSkipped(log.Skipped)
}

// asUsageError returns err as a usageError, unless it is one.
func asUsageError(err error) error {
	if _, is := errors.AsType[usageError](err); is {
		return err
	}
	return usageErrorOf("gateway audit", err)
}

// openAuditFiles opens files, or the audit file of the configuration if there are none. With
// follow, the audit file may be missing.
func openAuditFiles(
	ctx context.Context, s *configSource, files []string, follow bool,
) (*auditlog.Files, error) {
	switch {
	case len(files) == 1 && follow:
		log, err := auditlog.OpenNew(files[0])
		return log, auditReadError(err)
	case len(files) > 0:
		log, err := auditlog.OpenFiles(files)
		return log, auditReadError(err)
	}
	o := s.options(ctx, s.path, false, true)
	o.Sources, o.VariableNames, o.RequiredKeys = nil, nil, []string{"audit"}
	l, err := config.Load(o)
	if err != nil {
		return nil, err
	}
	const set = "set audit.file, or name a file: "
	switch l.Config.Audit.File {
	case config.PathNone:
		return nil, hintedError{errors.New("audit.file is none: there are no audit records"),
			set + "gateway audit FILE"}
	case "":
		return nil, hintedError{errors.New("audit records are part of the log, " +
			"because audit.file is not set"), set + "gateway audit LOG"}
	}
	path := absolutePath(l.Config.Audit.File)
	if follow {
		log, err := auditlog.OpenNew(path)
		return log, auditReadError(err)
	}
	log, err := auditlog.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hintedError{fmt.Errorf("there is no audit file yet: %s", path),
			"a gateway that serves with this configuration creates it; or name a file: " +
				"gateway audit FILE"}
	}
	return log, auditReadError(err)
}

// auditReadError adds a hint to an error about a file.
func auditReadError(err error) error {
	at, is := errors.AsType[*fs.PathError](err)
	switch {
	case !is:
		return err
	case errors.Is(err, fs.ErrPermission):
		return hintedError{err, "run the command as the user of the gateway"}
	case errors.Is(err, fs.ErrNotExist):
		return hintedError{fmt.Errorf("%s: no such file", at.Path), "check the name of the file"}
	}
	return fmt.Errorf("cannot read %s: %w", at.Path, at.Err)
}
