package auditlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"mcpgateway/internal/audit"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// call returns the record of call n, which ended n seconds after began.
func call(n int) audit.Record {
	return audit.Record{
		Seq: uint64(n + 1), Time: began.Add(time.Duration(n) * time.Second), Session: "5e55",
		Client: "claude/2.0", ID: fmt.Sprint(n), BackendID: fmt.Sprint(1000 + n), Tool: "gh__find",
		Backend: "gh", BackendTool: "find", Outcome: audit.OK,
		Started: began.Add(time.Duration(n)*time.Second - 3*time.Millisecond),
		Queued:  time.Millisecond, Dur: 2 * time.Millisecond, BytesIn: 10, BytesOut: 20,
	}
}

var options = audit.Options{Payloads: audit.All, Queue: 100_000}

// lines returns the lines of records as JSON.
func lines(t testing.TB, records ...audit.Record) string {
	t.Helper()
	var b bytes.Buffer
	write(t, audit.NewLines(&b, options), records)
	return b.String()
}

// textLines returns the lines of records in the format text of the log.
func textLines(t testing.TB, records ...audit.Record) string {
	t.Helper()
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	write(t, audit.New(log, options), records)
	return b.String()
}

func write(t testing.TB, j *audit.Journal, records []audit.Record) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range records {
		j.Write(r)
	}
	if err := j.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// calls returns the records of the calls from until before to.
func calls(from, to int) (all []audit.Record) {
	for n := from; n < to; n++ {
		all = append(all, call(n))
	}
	return all
}

// store writes a file, compressed by the suffix of its name.
func store(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var w io.WriteCloser = f
	switch filepath.Ext(path) {
	case gzipSuffix:
		w = gzip.NewWriter(f)
	case zstdSuffix:
		if w, err = zstd.NewWriter(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// ids returns the ids of the selected records, in their order.
func ids(t testing.TB, l *Files, q Query, from LinePosition) string {
	t.Helper()
	var all []string
	err := l.Each(t.Context(), &q, from, func(r *RecordLine) error {
		all = append(all, r.Text(ID))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// numbers returns the numbers from until before to.
func numbers(from, to int) string {
	var all []string
	for n := from; n < to; n++ {
		all = append(all, fmt.Sprint(n))
	}
	return strings.Join(all, " ")
}

func open(t testing.TB, path string) *Files {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}
