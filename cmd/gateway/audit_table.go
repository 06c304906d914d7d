package main

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpgateway/internal/auditlog"
	"mcpgateway/internal/text"
)

// A growingTable prints rows in columns, without the need to know all rows before. Columns become
// wider, but never narrower.
type growingTable struct {
	out    io.Writer
	header []string
	right  int // the last columns, which contain numbers, are aligned to the right
	widths []int
	rows   [][]string
}

// tableBatch is the number of rows for which the widths of columns are chosen at once.
const tableBatch = 500

func (t *growingTable) add(row ...string) error {
	if t.rows = append(t.rows, row); len(t.rows) < tableBatch {
		return nil
	}
	return t.flush()
}

// flush prints the rows that were added, and before the first row the header.
func (t *growingTable) flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	if t.widths == nil {
		t.widths = make([]int, len(t.header))
		t.rows = append([][]string{t.header}, t.rows...)
	}
	for _, row := range t.rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	out := bufio.NewWriter(t.out)
	var line strings.Builder
	for _, row := range t.rows {
		line.Reset()
		for i, cell := range row {
			pad := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			if i >= len(row)-t.right {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString("  ")
		}
		_, _ = out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	t.rows = t.rows[:0]
	return out.Flush()
}

// Longest cells of the table of records, in characters. gateway audit show prints whole values.
const (
	clientCell  = 28
	backendCell = 20
	toolCell    = 48
	reasonCell  = 100
)

func newAuditTable(out io.Writer) *growingTable {
	return &growingTable{out: out, header: []string{"TIME", "CALL", "CLIENT", "BACKEND", "TOOL", "OUTCOME",
		"DURATION", "REASON"}}
}

// auditRow returns the cells of a record.
func auditRow(r *auditlog.RecordLine) []string {
	tool := cell(r.Text(auditlog.Tool), toolCell)
	if r.Has(auditlog.Method) {
		tool = cell(r.Text(auditlog.Method)+" "+r.Text(auditlog.Tool), toolCell)
	}
	at := "-"
	if t := r.TimeOf(auditlog.Time); !t.IsZero() {
		at = t.Local().Format("2006-01-02 15:04:05.000")
	}
	reason := r.Text(auditlog.Reason)
	if reason == "" && r.Has(auditlog.Code) {
		reason = "code " + r.Text(auditlog.Code)
	}
	return []string{
		at,
		cell(r.Text(auditlog.Call), clientCell), cell(r.Text(auditlog.Client), clientCell),
		cell(r.Text(auditlog.Backend), backendCell), tool,
		cell(r.Text(auditlog.Outcome), backendCell), shortDuration(r.Duration()),
		safeText(reason, reasonCell),
	}
}

// cell returns an untrusted text for a column, "-" for "".
func cell(s string, n int) string { return orDash(safeText(s, n)) }

// safeText returns the first n characters of an untrusted text, without characters that control a
// terminal or hide text.
func safeText(s string, n int) string {
	if len(s) > 16*n { // at most 12 bytes for a character in an escape
		s = s[:16*n]
	}
	return truncate(text.Escape(s), n)
}

// shortDuration returns a duration with three digits, such as 69µs, 1.23s or 2m3s.
func shortDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1e3, 'f', 2, 64) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + "s"
	}
	return d.Round(time.Second).String()
}
