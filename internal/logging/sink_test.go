package logging_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/logging"
)

func lost(n int) []byte { return fmt.Appendf(nil, "lost %d", n) }

// number returns a record of 10 bytes.
func number(i int) string { return fmt.Sprintf("line %04d\n", i) }

func TestSinkWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink := logging.OpenSink(w, logging.SinkOptions{Limit: 1000, Lost: lost})
		start := time.Now()
		for i := range 10_000 {
			if n, err := io.WriteString(sink, number(i)); n != 10 || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		if err := sink.Close(time.Second); err == nil {
			t.Error("Close reports that all records were written")
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("10,000 writes and Close(1s) took %v", took)
		}
		if _, err := io.WriteString(sink, "x\n"); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
		r.Close() // ends the blocked write and the goroutine; synctest checks this
	})
}

func TestSinkReportsLostRecordsInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink := logging.OpenSink(w, logging.SinkOptions{Limit: 100, Lost: lost})
		for i := range 20 {
			io.WriteString(sink, number(i))
		}
		lines := bufio.NewScanner(r)
		var got []string
		next := func() { lines.Scan(); got = append(got, lines.Text()) }
		for len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "lost") {
			next()
			synctest.Wait()
		}
		io.WriteString(sink, number(20))
		next()
		kept := len(got) - 2
		if got[0] != "line 0000" || got[kept] != fmt.Sprintf("lost %d", 20-kept) ||
			got[kept+1] != "line 0020" {
			t.Errorf("got %q", got)
		}
		if err := sink.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
}

// If the reader reads from time to time, every record is either written, whole and in order, or
// counted in its place.
func TestSinkAccountsForEveryRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink := logging.OpenSink(w, logging.SinkOptions{Limit: 300, Lost: lost})
		const n = 1000
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				io.WriteString(sink, number(i))
				time.Sleep(time.Millisecond)
			}
			if err := sink.Close(time.Minute); err != nil {
				t.Error(err)
			}
			w.Close()
		})
		want := 0
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			var i int
			if _, err := fmt.Sscanf(lines.Text(), "lost %d", &i); err == nil {
				want += i
			} else if lines.Text()+"\n" != number(want) {
				t.Fatalf("got %q, want %q", lines.Text(), number(want))
			} else {
				want++
			}
			if want%7 == 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
		if want != n {
			t.Errorf("%d of %d accounted for", want, n)
		}
		wg.Wait()
	})
}

// recorder records each write, and fails while broken.
type recorder struct {
	mu     sync.Mutex
	writes []string
	broken bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return 0, io.ErrClosedPipe
	}
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

func TestSinkWritesWholeLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		sink := logging.OpenSink(&out, logging.SinkOptions{})
		long := strings.Repeat("x", 10_000)
		for i := range 1000 {
			io.WriteString(sink, number(i))
		}
		io.WriteString(sink, long)
		io.WriteString(sink, "end")
		if err := sink.Close(time.Second); err != nil {
			t.Error(err)
		}
		if got := strings.Join(out.writes, ""); len(got) != 10_000+10_001+4 ||
			!strings.HasSuffix(got, "x\nend\n") {
			t.Errorf("%d bytes", len(got))
		}
		for _, w := range out.writes {
			if !strings.HasSuffix(w, "\n") || len(w) > 4096 && w != long+"\n" {
				t.Errorf("a write of %d bytes: %.20q…", len(w), w)
			}
		}
	})
}

func TestSinkSurvivesFailingWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := recorder{broken: true}
		sink := logging.OpenSink(&out, logging.SinkOptions{Lost: lost})
		io.WriteString(sink, "one\n")
		synctest.Wait()
		io.WriteString(sink, "two\n")
		synctest.Wait()
		out.mu.Lock()
		out.broken = false
		out.mu.Unlock()
		io.WriteString(sink, "three\n")
		if err := sink.Close(time.Second); err != nil {
			t.Error(err)
		}
		got := strings.Join(out.writes, "")
		if !strings.HasPrefix(got, "lost ") || !strings.HasSuffix(got, "\nthree\n") {
			t.Errorf("got %q", got)
		}
	})
}

func TestSinkRecordLargerThanItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		sink := logging.OpenSink(&out, logging.SinkOptions{Limit: 50, Lost: lost})
		io.WriteString(sink, strings.Repeat("x", 51))
		io.WriteString(sink, "small\n")
		if err := sink.Close(time.Second); err != nil {
			t.Error(err)
		}
		if got := strings.Join(out.writes, ""); got != "lost 1\nsmall\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSinkWithoutLostRecordsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		sink := logging.OpenSink(
			&out, logging.SinkOptions{Limit: 50, Lost: func(int) []byte { return nil }},
		)
		io.WriteString(sink, strings.Repeat("x", 51))
		synctest.Wait()
		io.WriteString(sink, "small\n")
		if err := sink.Close(time.Second); err != nil {
			t.Error(err)
		}
		if got := strings.Join(out.writes, ""); got != "small\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestFormatLost(t *testing.T) {
	if got := logging.FormatLost("json")(3); !bytes.Contains(got, []byte(`"level":"WARN","msg":"log records lost: stderr was not read in time","lost":3}`)) {
		t.Errorf("got %s", got)
	}
}

func BenchmarkSink(b *testing.B) {
	sink := logging.OpenSink(io.Discard, logging.SinkOptions{})
	line := bytes.Repeat([]byte("x"), 200)
	b.ReportAllocs()
	for b.Loop() {
		sink.Write(line)
	}
	sink.Close(time.Minute)
}
