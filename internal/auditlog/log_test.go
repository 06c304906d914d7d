package auditlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/audit"
)

// Rotated files are read the oldest first, compressed or not.
func TestRotatedAndCompressedFilesAreReadInOrder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	store(t, path+".10.zst", lines(t, calls(0, 5)...))
	store(t, path+".3.gz", lines(t, calls(5, 10)...))
	store(t, path+".2.zst", lines(t, calls(10, 15)...))
	store(t, path+".1", lines(t, calls(15, 20)...))
	store(t, path+".1.gz", lines(t, calls(15, 20)...)) // an interrupted compression
	store(t, path, lines(t, calls(20, 25)...))
	for _, other := range []string{".lock", ".bak", ".01", ".-1", ".0", ".1.gz.tmp", ".x.gz"} {
		store(t, path+strings.ReplaceAll(other, ".gz", ".GZ"), lines(t, call(99)))
	}
	l := open(t, path)
	if got := ids(t, l, Query{}, LinePosition{}); got != numbers(0, 25) {
		t.Errorf("got %s", got)
	}
	for n := 1; n < 30; n++ {
		at, more, err := l.Last(t.Context(), &Query{}, n)
		if err != nil || more != (n < 25) {
			t.Errorf("last %d: more %t, %v", n, more, err)
		}
		if got := ids(t, l, Query{}, at); got != numbers(max(0, 25-n), 25) {
			t.Errorf("last %d: got %s", n, got)
		}
	}
	files, err := OpenFiles([]string{path, path + ".1", path + ".1.gz", path + ".10.zst"})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	want := numbers(0, 5) + " " + numbers(15, 25)
	if got := ids(t, files, Query{}, LinePosition{}); got != want {
		t.Errorf("named files: got %s", got)
	}
}

// Files that are renamed, compressed and removed while they are read are read to their end.
func TestRotationWhileFilesAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	store(t, path+".1", lines(t, calls(0, 5)...))
	store(t, path, lines(t, calls(5, 10)...))
	l := open(t, path)
	var got []string
	err := l.Each(t.Context(), &Query{}, LinePosition{}, func(r *RecordLine) error {
		if len(got) == 0 {
			store(t, path+".2.gz", lines(t, calls(0, 5)...))
			for from, to := range map[string]string{path + ".1": "", path: path + ".1"} {
				if to == "" {
					if err := os.Remove(from); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			store(t, path, lines(t, calls(10, 12)...))
		}
		got = append(got, r.Text(ID))
		return nil
	})
	if text := strings.Join(got, " "); err != nil || text != numbers(0, 10) {
		t.Errorf("got %s, %v", text, err)
	}
}

// Lines that are torn, too long or no records are skipped and counted; the others are read.
func TestTornAndLongLinesAreSkippedAndCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	one := lines(t, call(1))
	store(t, path, one[:50]+"\n"+one+"garbage\x00\xff\n\n"+strings.Repeat("x", maxLine+10)+"\n"+
		lines(t, call(2))+"{"+strings.Repeat("y", 3*maxLine)+"\n"+lines(t, call(3))+
		`{"id":"5","msg":"call"`+"\n"+lines(t, call(4))+one[:len(one)/2])
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	l := open(t, path)
	if got := ids(t, l, Query{}, LinePosition{}); got != "1 2 3 4" {
		t.Errorf("got %s", got)
	}
	if l.Skipped != (Skipped{Lines: 4, Long: 2}) {
		t.Errorf("skipped %+v", l.Skipped)
	}
	for n, want := range map[int]string{1: "4", 2: "3 4", 3: "2 3 4", 9: "1 2 3 4"} {
		at, _, err := l.Last(t.Context(), &Query{}, n)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(t, l, Query{}, at); got != want {
			t.Errorf("last %d: got %s", n, got)
		}
	}
}

// The memory for reading is bounded, whatever the files contain.
func TestMemoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl.gz")
	long := strings.Repeat("z", 16<<20)
	store(t, path, long+long+"\n"+lines(t, call(1))+long+"{"+long)
	l, err := OpenFiles([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := ids(t, l, Query{}, LinePosition{}); got != "1" || l.Skipped.Long != 2 {
		t.Errorf("got %q, %+v", got, l.Skipped)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 24<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

// A damaged compressed file is an error with its name; the records before the damage are read.
func TestDamagedCompressedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl.1.gz")
	store(t, path, lines(t, calls(0, 5000)...))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenFiles([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	err = l.Each(t.Context(), &Query{}, LinePosition{}, func(*RecordLine) error { n++; return nil })
	if at, is := errors.AsType[*fs.PathError](err); !is || at.Path != path {
		t.Errorf("%d records, %v", n, err)
	}
}

// A file that needs more than 64 MiB of memory to be decompressed is an error.
func TestZstdWindowIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl.1.zst")
	header := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3} // a window of 128 MiB
	if err := os.WriteFile(path, append(header, 1, 0, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenFiles([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = l.Each(t.Context(), &Query{}, LinePosition{}, func(*RecordLine) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "window size exceeded") {
		t.Errorf("%v", err)
	}
}

func TestFilesAreBounded(t *testing.T) {
	_, err := OpenFiles(make([]string, maxFiles+1))
	if err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
}

func TestMissingFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.jsonl")
	if _, err := Open(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := OpenFiles([]string{path}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder: %v", err)
	}
}

// A range of times selects the same records as a look at every record, although times are not
// exactly in order.
func TestTimeRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []audit.Record
	for n := range 6000 {
		r := call(n)
		r.Time = r.Time.Add(-time.Duration(random.IntN(50)) * time.Second)
		if n%1000 == 7 {
			r.Arguments = []byte(`"` + strings.Repeat("a", 200_000) + `"`)
		}
		all = append(all, r)
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	store(t, path+".2.zst", lines(t, all[:1000]...))
	store(t, path+".1", lines(t, all[1000:2000]...))
	store(t, path, "torn\n"+lines(t, all[2000:]...))
	l := open(t, path)
	for range 40 {
		q := Query{Since: began.Add(time.Duration(random.IntN(7000)-500) * time.Second)}
		q.Until = q.Since.Add(time.Duration(random.IntN(900)+1) * time.Second)
		switch random.IntN(4) {
		case 0:
			q.Since = time.Time{}
		case 1:
			q.Until = time.Time{}
		}
		var want []string
		for n, r := range all {
			if !r.Time.Before(q.Since) && (q.Until.IsZero() || r.Time.Before(q.Until)) {
				want = append(want, fmt.Sprint(n))
			}
		}
		if got := ids(t, l, q, LinePosition{}); got != strings.Join(want, " ") {
			t.Errorf("from %v to %v: got %d bytes, want %d", q.Since, q.Until, len(got),
				len(strings.Join(want, " ")))
		}
		at, more, err := l.Last(t.Context(), &q, 10)
		if err != nil || more != (len(want) > 10) {
			t.Errorf("more %t of %d, %v", more, len(want), err)
		}
		if got := ids(t, l, q, at); got != strings.Join(want[max(0, len(want)-10):], " ") {
			t.Errorf("the last 10 are %s", got)
		}
	}
}

// A range of times reads a small part of a file.
func TestTimeRangeReadsPartOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	records := writeAudit(t, path, 8<<20, began)
	l := open(t, path)
	m, err := newMatcher(&Query{Since: began.Add(time.Duration(records) * time.Millisecond / 2),
		Until: began.Add(time.Duration(records)*time.Millisecond/2 + time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	m.since += disorder.Microseconds() // the file has 20 seconds
	m.until -= disorder.Microseconds()
	from, to := l.files[0].timeRange(m)
	if to-from > 1<<20 || to == from {
		t.Errorf("bytes %d to %d are read", from, to)
	}
}

// The context ends a query.
func TestCancelledQuery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	store(t, path, lines(t, calls(0, 5)...))
	l := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := l.Each(ctx, &Query{}, LinePosition{}, func(*RecordLine) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, _, err := l.Last(ctx, &Query{}, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	stop := errors.New("stop")
	err = l.Each(t.Context(), &Query{}, LinePosition{}, func(*RecordLine) error { return stop })
	if err != stop {
		t.Errorf("%v", err)
	}
}

// Any bytes are read without an error, and the records among them are found by both ways.
func FuzzFile(f *testing.F) {
	f.Add([]byte(lines(f, calls(0, 3)...)), 2)
	f.Add([]byte(textLines(f, call(1))+"\r\n{}\n{\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, path)
		q := Query{Since: time.Unix(0, 0), Tools: []string{"gh__find"}}
		all := ids(t, l, q, LinePosition{})
		n = max(1, n%10)
		at, _, err := l.Last(t.Context(), &q, n)
		if err != nil {
			t.Fatal(err)
		}
		if last := ids(t, l, q, at); !strings.HasSuffix(all, last) {
			t.Errorf("the last %d are %q of %q", n, last, all)
		}
	})
}
