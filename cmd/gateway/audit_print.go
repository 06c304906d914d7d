package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"mcpgateway/internal/auditlog"
)

// An auditPrinter prints the result of the command audit.
type auditPrinter struct {
	out, err *os.File
	flags    *auditFlags
	found    bool // a record was found
}

// A recordPrinter prints records. flush prints those that it has not printed yet.
type recordPrinter interface {
	print(r *auditlog.RecordLine) error
	flush() error
}

// newRecordPrinter returns the printer that the flags select.
func newRecordPrinter(out *os.File, asJSON bool) recordPrinter {
	if asJSON {
		return &linePrinter{Writer: bufio.NewWriter(out), isTerminal: isTerminal(out)}
	}
	return rowPrinter{newAuditTable(out)}
}

// A linePrinter prints the lines of records unchanged. On a terminal, it escapes characters that
// control the terminal.
type linePrinter struct {
	*bufio.Writer
	isTerminal bool
}

func (p *linePrinter) print(r *auditlog.RecordLine) error {
	line := r.Line
	if p.isTerminal {
		line = []byte(escapeControls(string(line)))
	}
	_, _ = p.Write(line)
	return p.WriteByte('\n') // an error stays
}

func (p *linePrinter) flush() error { return p.Flush() }

// A rowPrinter prints a table of records.
type rowPrinter struct{ *growingTable }

func (p rowPrinter) print(r *auditlog.RecordLine) error { return p.add(auditRow(r)...) }

// printRecords prints the last records and, with --follow, new ones.
func (p *auditPrinter) printRecords(ctx context.Context, log *auditlog.Files,
	q *auditlog.Query) error {
	n := p.flags.lines
	switch {
	case n >= 0:
	case p.flags.follow:
		n = defaultFollowLines
	case p.flags.json:
		n = 0
	default:
		n = defaultLines
	}
	var from auditlog.LinePosition
	if n > 0 {
		var more bool
		var err error
		if from, more, err = log.Last(ctx, q, n); err != nil {
			return err
		}
		if more && !p.flags.follow {
			defer fmt.Fprintf(p.err,
				"gateway: only the last %d records; -n 0 prints all of them\n", n)
		}
	}
	to := newRecordPrinter(p.out, p.flags.json)
	one := func(r *auditlog.RecordLine) error {
		p.found = true
		return to.print(r)
	}
	if err := log.Each(ctx, q, from, one); err != nil {
		return err
	}
	if err := to.flush(); err != nil || !p.flags.follow {
		return err
	}
	return log.Follow(ctx, q, one, to.flush)
}

// A slowCall is a call that is one of the slowest.
type slowCall struct {
	micros int64
	line   []byte // the whole line, with --json
	row    []string
}

// maxSlowest bounds -n with --slowest, because the calls are stored.
const maxSlowest = 1000

// printSlowest prints the slowest calls.
func (p *auditPrinter) printSlowest(ctx context.Context, log *auditlog.Files,
	q *auditlog.Query) error {
	n := p.flags.lines
	if n < 0 {
		n = defaultLines
	}
	if n == 0 || n > maxSlowest {
		return usageErrorOf("gateway audit", fmt.Errorf("--slowest takes -n from 1 to %d", maxSlowest))
	}
	var all []slowCall
	slower := func(a, b slowCall) int { return cmp.Compare(b.micros, a.micros) }
	err := log.Each(ctx, q, auditlog.LinePosition{}, func(r *auditlog.RecordLine) error {
		p.found = true
		call := slowCall{micros: r.Duration().Microseconds()}
		if len(all) == n && call.micros <= all[n-1].micros {
			return nil
		}
		if p.flags.json {
			call.line = bytes.Clone(r.Line)
		} else {
			call.row = auditRow(r)
		}
		at, _ := slices.BinarySearchFunc(all, slowCall{micros: call.micros - 1}, slower)
		all = slices.Insert(all[:min(len(all), n-1)], min(at, n-1), call)
		return nil
	})
	if err != nil {
		return err
	}
	to := newRecordPrinter(p.out, p.flags.json)
	for _, call := range all {
		if rows, is := to.(rowPrinter); is {
			err = rows.add(call.row...)
		} else {
			err = to.print(&auditlog.RecordLine{Line: call.line})
		}
		if err != nil {
			return err
		}
	}
	return to.flush()
}

// printStats prints the groups of records.
func (p *auditPrinter) printStats(ctx context.Context, log *auditlog.Files, q *auditlog.Query,
	stats *auditlog.Stats) error {
	err := log.Each(ctx, q, auditlog.LinePosition{}, func(r *auditlog.RecordLine) error {
		p.found = true
		stats.Add(r)
		return nil
	})
	if err != nil {
		return err
	}
	if p.flags.json {
		return printStatsJSON(p.out, p.flags.by, stats.Groups())
	}
	header := []string{"CALLS", "ERRORS", "P50", "P95", "P99", "IN", "OUT"}
	t := &growingTable{out: p.out, header: header, right: len(header)}
	if p.flags.by != "" {
		t.header = append([]string{map[string]string{
			"tool": "TOOL", "backend": "BACKEND", "client": "CLIENT", "principal": "PRINCIPAL",
			"outcome": "OUTCOME", "hour": "HOUR"}[p.flags.by]}, header...)
	}
	for _, g := range stats.Groups() {
		row := []string{strconv.FormatInt(g.Calls, 10), strconv.FormatInt(g.Failures, 10),
			shortDuration(g.Quantile(0.5)), shortDuration(g.Quantile(0.95)),
			shortDuration(g.Quantile(0.99)), byteCount(g.BytesIn), byteCount(g.BytesOut)}
		if p.flags.by != "" {
			row = append([]string{cell(g.Name, toolCell)}, row...)
		}
		if err := t.add(row...); err != nil {
			return err
		}
	}
	return t.flush()
}

// printStatsJSON prints a line of JSON for each group.
func printStatsJSON(out io.Writer, by string, groups []*auditlog.StatsGroup) error {
	for _, g := range groups {
		ms := func(q float64) float64 { return float64(g.Quantile(q).Microseconds()) / 1e3 }
		line, err := json.Marshal(struct {
			By       string  `json:"by,omitempty"`
			Name     string  `json:"name"`
			Calls    int64   `json:"calls"`
			Errors   int64   `json:"errors"`
			P50      float64 `json:"p50_ms"`
			P95      float64 `json:"p95_ms"`
			P99      float64 `json:"p99_ms"`
			BytesIn  int64   `json:"bytes_in"`
			BytesOut int64   `json:"bytes_out"`
		}{by, g.Name, g.Calls, g.Failures, ms(0.5), ms(0.95), ms(0.99), g.BytesIn, g.BytesOut})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// byteCount returns a number of bytes with a unit, such as 12.3 kB.
func byteCount(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n), 0
	for value >= 999.95 && unit < 4 {
		value, unit = value/1000, unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + []string{"B", "kB", "MB", "GB", "TB"}[unit]
}

// reportSkipped reports that there are no records, and the lines that were skipped.
func (p *auditPrinter) reportSkipped(s auditlog.Skipped) error {
	if !p.found && !p.flags.follow {
		fmt.Fprintln(p.err, "gateway: no record was found")
	}
	if s.Lines > 0 {
		fmt.Fprintf(p.err, "gateway: skipped %d lines that are incomplete or not records\n", s.Lines)
	}
	if s.Long > 0 {
		fmt.Fprintf(p.err, "gateway: skipped %d lines that are longer than 4 MiB\n", s.Long)
	}
	return nil
}
