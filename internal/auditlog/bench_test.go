package auditlog

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"mcpgateway/internal/audit"
)

// writeAudit writes an audit file of at least this size, with 1,000 records per second from begin
// on, and returns the number of records. One of 1,000 calls has the outcome timeout.
func writeAudit(t testing.TB, path string, size int, begin time.Time) (records int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	written := &countingWriter{w: w}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for written.n < size {
		j := audit.NewLines(written, audit.Options{})
		for range 1000 {
			at := begin.Add(time.Duration(records) * time.Millisecond)
			r := audit.Record{
				Seq: uint64(records + 1), Time: at, Session: fmt.Sprintf("%032x", records%7),
				Client: "claude-code/2.0.14", ID: strconv.Itoa(records), Principal: "ci",
				BackendID: strconv.Itoa(records / 2), Tool: "github__search_issues",
				Backend: "github", BackendTool: "search_issues", Outcome: audit.OK,
				Started: at.Add(-time.Second), Queued: 12 * time.Microsecond,
				Dur:     time.Duration(records%1000+1) * time.Millisecond,
				BytesIn: records % 300, BytesOut: records % 5000,
			}
			if records%1000 == 999 {
				r.Outcome, r.Reason = audit.Timeout, "no answer within 1m0s"
			}
			j.Write(r)
			records++
		}
		_ = j.Run(ctx)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return records
}

type countingWriter struct {
	w *bufio.Writer
	n int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

// BenchmarkScan compares queries with grep -c, which counts the lines that contain a text. The
// metric ratio is the speed of the query, divided by the speed of grep. AUDITLOG_MB is the size of
// the file.
func BenchmarkScan(b *testing.B) {
	size := 16
	if n, err := strconv.Atoi(os.Getenv("AUDITLOG_MB")); err == nil {
		size = n
	}
	path := filepath.Join(b.TempDir(), "audit.jsonl")
	records := writeAudit(b, path, size<<20, time.Unix(1_800_000_000, 0))
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		query      Query
		stats      bool
		want       int
	}{
		{"outcome", `"outcome":"timeout"`, Query{Outcomes: []string{"timeout"}}, false,
			records / 1000},
		{"all", `"tool":"github__search_issues"`,
			Query{Tools: []string{"github__search_issues"}}, false, records},
		{"id", `"k3f9q2x7-1a7"`, Query{IDs: []string{"k3f9q2x7-1a7"}}, false, 0},
		{"slower", `"dur_ms":[5-9][0-9][0-9]`, Query{Slower: 500 * time.Millisecond}, false, -1},
		{"stats", `"outcome"`, Query{}, true, records},
	} {
		b.Run(c.name, func(b *testing.B) {
			var grep time.Duration
			for range 3 {
				began := time.Now()
				cmd := exec.Command("grep", "-c", c.text, path)
				if out, err := cmd.Output(); err != nil && len(out) == 0 {
					b.Skipf("grep: %v", err)
				}
				if d := time.Since(began); grep == 0 || d < grep {
					grep = d
				}
			}
			b.SetBytes(info.Size())
			best := time.Duration(0)
			for b.Loop() {
				began := time.Now()
				n := scanAll(b, path, &c.query, c.stats)
				if d := time.Since(began); best == 0 || d < best {
					best = d
				}
				if c.want >= 0 && n != c.want {
					b.Fatalf("%d records, want %d", n, c.want)
				}
			}
			b.ReportMetric(grep.Seconds()/best.Seconds(), "ratio")
			b.ReportMetric(float64(info.Size())/grep.Seconds()/1e6, "grep-MB/s")
		})
	}
}

func scanAll(t testing.TB, path string, q *Query, withStats bool) (n int) {
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stats, err := NewStats("tool")
	if err != nil {
		t.Fatal(err)
	}
	err = l.Each(t.Context(), q, LinePosition{}, func(r *RecordLine) error {
		n++
		if withStats {
			stats.Add(r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
