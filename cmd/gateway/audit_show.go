package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/auditlog"
	"mcpgateway/internal/text"
)

func auditShowCommand(c *cli) *cobra.Command {
	asJSON, logPath := false, ""
	cmd := &cobra.Command{
		Use:   "show ID [FILE...]",
		Short: "Print everything about one call",
		Long: `show prints everything about the call with this id: a call id, or the id of the
client, the backend or the trace. If several calls have the id, it lists them. It also
prints the lines of the log about the backend at the time of the call: those that the
gateway still has in memory if it runs, or those in the FILE of --log.

    gateway audit show k3f9q2x7-1a7
    gateway audit show k3f9q2x7-1a7 --log gateway.log`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorOf(cmd.CommandPath(),
					errors.New("name a call: gateway audit show ID"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			log, err := openAuditFiles(ctx, &c.source, args[1:], false)
			if err != nil {
				return err
			}
			defer log.Close()
			found, err := findCall(ctx, log, args[0])
			if err != nil {
				return auditReadError(err)
			}
			return showFound(ctx, c, found, asJSON, logPath)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the records as they are in the file")
	cmd.Flags().StringVar(&logPath, "log", "",
		"print the lines of the log `FILE` (text or json) about the backend during the call")
	return cmd
}

// maxListedCalls bounds the calls that show lists if several calls have an id.
const maxListedCalls = 50

// foundCalls are the calls with an id.
type foundCalls struct {
	id    string
	count int
	last  [][]byte // lines of the last calls
	exact []byte   // line of the call with this call id; nil = none
}

// findCall returns the calls with an id.
func findCall(ctx context.Context, log *auditlog.Files, id string) (foundCalls, error) {
	found := foundCalls{id: id}
	q := &auditlog.Query{IDs: []string{auditlog.Literal(id)}}
	err := log.Each(ctx, q, auditlog.LinePosition{}, func(r *auditlog.RecordLine) error {
		found.count++
		line := bytes.Clone(r.Line)
		if r.Text(auditlog.Call) == id {
			found.exact = line
		}
		if found.last = append(found.last, line); len(found.last) > maxListedCalls {
			found.last = found.last[1:]
		}
		return nil
	})
	return found, err
}

// showFound prints the call, or a list if there are several.
func showFound(ctx context.Context, c *cli, found foundCalls, asJSON bool, logPath string) error {
	if found.exact != nil {
		found.count, found.last = 1, [][]byte{found.exact}
	}
	if found.count == 0 {
		return hintedError{fmt.Errorf("no call has the id %q", found.id),
			"gateway audit lists calls with their ids; a file that was removed by rotation " +
				"cannot be searched"}
	}
	records := make([]auditlog.RecordLine, 0, len(found.last))
	for _, line := range found.last {
		if r, ok := auditlog.Parse(line); ok {
			records = append(records, r)
		}
	}
	if !asJSON && found.count == 1 && len(records) == 1 {
		r := &records[0]
		return showCall(ctx, c.out, r, logOfCall(ctx, &c.source, logPath, r.Text(auditlog.Call)))
	}
	to := newRecordPrinter(c.out, asJSON)
	for i := range records {
		if err := to.print(&records[i]); err != nil {
			return err
		}
	}
	if err := to.flush(); err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintf(c.err, "gateway: %d calls have this id; "+
			"show one of them by its call id: gateway audit show CALL\n", found.count)
	}
	return nil
}

// showCall prints everything about a call.
func showCall(ctx context.Context, out io.Writer, r *auditlog.RecordLine, log backendLog) error {
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s %s\n", key, value)
		}
	}
	get := func(f auditlog.Attribute) string { return text.Escape(r.Text(f)) }
	line("call", get(auditlog.Call))
	line("method", text.Escape(r.MethodName()))
	line("tool", get(auditlog.Tool))
	backend := get(auditlog.Backend)
	if own := get(auditlog.BackendTool); own != "" {
		backend += " (as " + own + ")"
	}
	line("backend", backend)
	line("client", get(auditlog.Client))
	line("principal", get(auditlog.Principal))
	line("session", get(auditlog.Session))
	line("ids", joinIDs(get))
	showTimes(line, r)
	line("rounds", get(auditlog.Rounds))
	line("progress", get(auditlog.Progress))
	line("reconnects", get(auditlog.Reconnects))
	outcome := get(auditlog.Outcome)
	if code := get(auditlog.Code); code != "" {
		outcome += ", code " + code
	}
	line("outcome", outcome)
	line("reason", get(auditlog.Reason))
	line("confirmation", get(auditlog.Confirmation))
	line("bytes", get(auditlog.BytesIn)+" in, "+get(auditlog.BytesOut)+" out")
	line("arguments", get(auditlog.Arguments))
	line("result", get(auditlog.Result))
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	return showLog(ctx, out, r, log)
}

// joinIDs returns the ids of a call on both sides.
func joinIDs(get func(auditlog.Attribute) string) string {
	var all []string
	for _, one := range []struct {
		name  string
		field auditlog.Attribute
	}{
		{"client", auditlog.ID}, {"backend", auditlog.BackendID}, {"trace", auditlog.TraceID},
	} {
		if id := get(one.field); id != "" {
			all = append(all, one.name+" "+id)
		}
	}
	return strings.Join(all, ", ")
}

// showTimes prints when the call was received, sent and ended.
func showTimes(line func(key, value string), r *auditlog.RecordLine) {
	const form = "2006-01-02 15:04:05.000000"
	ended, started := r.TimeOf(auditlog.Time), r.TimeOf(auditlog.Started)
	if started.IsZero() {
		started = ended.Add(-r.Duration())
	}
	line("received", started.Local().Format(form))
	if r.Has(auditlog.BackendID) {
		line("sent", fmt.Sprintf("%s (after %v)", started.Add(r.Queued()).Local().Format(form),
			r.Queued()))
	} else {
		line("sent", "-")
	}
	line("ended", fmt.Sprintf("%s (after %v in all)", ended.Local().Format(form), r.Duration()))
}

// Bounds of the log lines about a call.
const (
	aroundCall   = time.Second // before the start and after the end
	maxCallLines = 200
)

// showLog prints the lines of the log about the backend at the time of the call.
func showLog(ctx context.Context, out io.Writer, r *auditlog.RecordLine, log backendLog) error {
	backend := r.Text(auditlog.Backend)
	if log == nil || backend == "" {
		return nil
	}
	ended := r.TimeOf(auditlog.Time)
	since := ended.Add(-r.Duration() - aroundCall)
	lines, more, err := log.lines(ctx, backend, since, ended.Add(aroundCall), maxCallLines)
	if _, isFile := errors.AsType[*fs.PathError](err); isFile {
		return auditReadError(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nlog of backend %s at that time:\n", text.Escape(backend))
	for _, one := range lines {
		b.WriteString("  " + text.Escape(one) + "\n")
	}
	switch {
	case err != nil:
		b.WriteString("  not available: " + text.Escape(err.Error()) + "\n")
	case more:
		b.WriteString("  … only the first " + strconv.Itoa(maxCallLines) + " lines\n")
	case len(lines) == 0:
		b.WriteString("  no lines\n")
	}
	_, err = io.WriteString(out, b.String())
	return err
}
