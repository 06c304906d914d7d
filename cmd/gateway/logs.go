package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/adminapi"
)

// logsFlags are the flags of the command logs.
type logsFlags struct {
	follow bool
	lines  int
	since  time.Duration
	level  string
	asJSON bool
}

func logsCommand(c *cli) *cobra.Command {
	choice := gatewayChoice{source: &c.source}
	var flags logsFlags
	cmd := &cobra.Command{
		Use:   "logs [BACKEND]...",
		Short: "Print the last lines of the log of a running gateway",
		Long: `logs prints the last lines of the log of a running gateway, which has them in memory. It
works even if the client that has started the gateway hides its stderr. With names of
backends it prints only lines about these, including what they write to stderr.

Lines below the log level of the gateway do not exist. Secrets are masked.

    gateway logs -f
    gateway logs docs --since 10m --level warn`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) (
			[]cobra.Completion, cobra.ShellCompDirective,
		) {
			return completionWords(c.source.backendNames()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := flags.query(args)
			if err != nil {
				return err
			}
			chosen, err := choice.choose(cmd.Context(), args...)
			if err != nil {
				return err
			}
			p := &logPrinter{cli: c, asJSON: flags.asJSON}
			if flags.follow {
				return p.follow(cmd.Context(), &chosen[0], query)
			}
			lines, err := chosen[0].Logs(cmd.Context(), query)
			if err != nil {
				return apiError(err)
			}
			for _, line := range lines {
				if err := p.print(&line); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&choice.one, "gateway", "",
		"the gateway `ID`: its id, its process id, or its configuration file")
	cmd.Flags().BoolVarP(&flags.follow, "follow", "f", false, "print further lines as they come")
	cmd.Flags().IntVarP(&flags.lines, "lines", "n", 100, "the number of earlier `LINES`")
	cmd.Flags().DurationVar(&flags.since, "since", 0, "only lines of the last `TIME`, such as 10m")
	cmd.Flags().StringVar(&flags.level, "level", "",
		"only lines of this `LEVEL` or above: debug, info, warn or error")
	cmd.Flags().BoolVar(&flags.asJSON, "json", false, "print a line of JSON for each line")
	completeFlag(cmd, "level", values(logLevels...))
	return cmd
}

var logLevels = []string{"debug", "info", "warn", "error"}

// maxLogLines is the greatest number of lines that can be asked for.
const maxLogLines = 10_000

// query returns the query for the flags, or a usageError.
func (f *logsFlags) query(names []string) (url.Values, error) {
	switch {
	case f.lines < 0 || f.lines > maxLogLines:
		return nil, usageErrorOf("gateway logs",
			fmt.Errorf("--lines: want a number from 0 to %d", maxLogLines))
	case f.since < 0:
		return nil, usageErrorOf("gateway logs", errors.New("--since: want a time such as 10m"))
	case f.level != "" && !slices.Contains(logLevels, f.level):
		return nil, usageErrorOf("gateway logs",
			fmt.Errorf("--level %q: want %s", f.level, strings.Join(logLevels, ", ")))
	}
	q := url.Values{"backend": names, "limit": {strconv.Itoa(f.lines)}}
	if f.since > 0 {
		q.Set("since", time.Now().Add(-f.since).UTC().Format(time.RFC3339Nano))
	}
	if f.level != "" {
		q.Set("level", f.level)
	}
	return q, nil
}

// A logPrinter prints lines of a log.
type logPrinter struct {
	*cli
	asJSON bool
}

// follow prints lines until ctx is done or the gateway ends.
func (p *logPrinter) follow(ctx context.Context, g *chosenGateway, query url.Values) error {
	err := g.Events(ctx, []adminapi.EventType{adminapi.LogEvents}, query,
		func(e *adminapi.AdminEvent) error {
			switch {
			case e.Log != nil:
				return p.print(e.Log)
			case e.Lost != nil:
				fmt.Fprintf(p.err, "gateway: %d lines were lost\n", e.Lost.Logs)
			}
			return nil
		})
	if ctx.Err() != nil {
		return nil
	}
	return apiError(err)
}

// print prints a line. The text of a backend cannot control a terminal.
func (p *logPrinter) print(l *adminapi.LogEntry) error {
	if p.asJSON {
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(l)
	}
	text := l.Message
	if l.Attrs != "" {
		text += " " + l.Attrs
	}
	_, err := fmt.Fprintf(p.out, "%s %-5s %-12s %s\n", l.Time.Local().Format("15:04:05.000"),
		strings.ToUpper(l.Level), orDash(printable(l.Backend)), printable(text))
	return err
}
