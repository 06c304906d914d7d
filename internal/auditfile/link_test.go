package auditfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/auditchain"
)

// verify verifies the chain in the files and returns the findings.
func verify(t *testing.T, path string) (found []string, r auditchain.ChainResult) {
	v, err := auditchain.NewChainVerifier("", func(f auditchain.Finding) {
		found = append(found, fmt.Sprintf("%s %s:%d", f.Kind, strings.TrimPrefix(f.File, path),
			f.Line))
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in, err := decompressed(file, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		v.Read(file, in)
		in.Close()
	}
	return found, v.End()
}

// object returns a line without a link.
func object(i int) string { return fmt.Sprintf(`{"x":%d}`+"\n", i) }

func reopened(t *testing.T, path string, o Options) *File {
	f, err := OpenFile(path, o, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The chain continues over rotations, restarts, compression and other processes. Write returns the
// number of bytes without links.
func TestChain(t *testing.T) {
	for _, form := range []Compression{None, Gzip, Zstd} {
		o := Options{MaxSize: 300, Chain: true, Keep: Keep{Files: 100}, Compress: form}
		f, path := open(t, o)
		other := reopened(t, path, o)
		n := 0
		write := func(f *File) {
			n++
			if written, err := io.WriteString(f, object(n)+object(n)); err != nil ||
				written != 2*len(object(n)) {
				t.Errorf("%d, %v", written, err)
			}
		}
		for i := range 30 {
			write(f)
			if i%4 == 0 {
				write(other)
			}
			if i%9 == 0 {
				f.Close()
				f = reopened(t, path, o)
			}
			if i%5 == 0 {
				if err := (&compressor{path, &f.lock, form}).run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		found, r := verify(t, path)
		if len(found) > 0 || r.Records != 2*n || r.Last != uint64(2*n) || r.First != 1 {
			t.Errorf("%s: %v, %+v", form, found, r)
		}
	}
}

// Removed old files are no problem: the predecessor of the first record is unknown.
func TestChainAfterRetention(t *testing.T) {
	f, path := open(t, Options{MaxSize: 200, Chain: true, Keep: Keep{Files: 2}})
	for i := range 20 {
		io.WriteString(f, object(i))
	}
	found, r := verify(t, path)
	if len(found) > 0 || r.First < 10 || r.Last != 20 {
		t.Errorf("%v, %+v", found, r)
	}
}

// A chain continues in a file that was empty since the rotation, also if the former file is
// compressed, and when it is switched on, off and on again by a reload.
func TestChainAfterQuietRotation(t *testing.T) {
	f, path := open(t, Options{Chain: true})
	io.WriteString(f, object(1))
	f.Close()
	os.Rename(path, path+".1")
	f = reopened(t, path, Options{Chain: true, Compress: Gzip})
	if err := (&compressor{path, &f.lock, Gzip}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, object(2))
	f.Configure(Options{})
	io.WriteString(f, object(3))
	f.Configure(Options{Chain: true})
	io.WriteString(f, object(4))
	found, r := verify(t, path)
	if fmt.Sprint(found) != "[not_linked :2]" || r.Last != 3 || r.Problems != 0 {
		t.Errorf("%v, %+v", found, r)
	}
}

// Without chain, the bytes of lines are unchanged.
func TestNoChainWritesTheSameBytes(t *testing.T) {
	f, path := open(t, Options{})
	io.WriteString(f, object(1)+object(2))
	if b, _ := os.ReadFile(path); string(b) != object(1)+object(2) {
		t.Errorf("got %s", b)
	}
}

// A file that logrotate moved to a name that the gateway does not know is continued, also if
// another process has written its last line.
func TestChainAfterLogrotate(t *testing.T) {
	f, path := open(t, Options{Chain: true})
	other := reopened(t, path, Options{Chain: true})
	io.WriteString(f, object(1))
	io.WriteString(other, object(2))
	os.Rename(path, path+"-20261201")
	f.Reopen()
	f.Configure(Options{Chain: true, Compress: Gzip})
	io.WriteString(f, object(3))
	io.WriteString(other, object(4))
	moved, _ := os.ReadFile(path + "-20261201")
	now, _ := os.ReadFile(path)
	os.WriteFile(path, append(moved, now...), 0o600)
	if found, r := verify(t, path); len(found) > 0 || r.Last != 4 {
		t.Errorf("%v, %+v", found, r)
	}
}

// A process that crashed in the middle of a line leaves an incomplete line, in the file or at the
// end of the former file. The chain covers it.
func TestChainAfterIncompleteLine(t *testing.T) {
	for _, rotated := range []bool{false, true} {
		f, path := open(t, Options{Chain: true})
		io.WriteString(f, object(1)+object(2))
		file, err := openAppend(path)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(file, `{"x":3,"se`)
		file.Close()
		if rotated {
			os.Rename(path, path+".1")
		}
		io.WriteString(reopened(t, path, Options{Chain: true}), object(4))
		io.WriteString(f, object(5))
		found, r := verify(t, path)
		want := map[bool]string{false: "[incomplete :3]", true: "[incomplete .1:3]"}[rotated]
		if fmt.Sprint(found) != want || r.Last != 4 || r.Problems != 0 {
			t.Errorf("%v, %+v", found, r)
		}
	}
}

// Many bytes without a link are searched, up to maxTail.
func TestChainAfterLongTail(t *testing.T) {
	for size, want := range map[int]uint64{200 << 10: 2, maxTail - 1000: 2, maxTail + 1000: 1} {
		f, path := open(t, Options{Chain: true})
		io.WriteString(f, object(1))
		f.Configure(Options{})
		io.WriteString(f, fmt.Sprintf(`{"x":%q}`+"\n"+`{"x":2}`+"\n", strings.Repeat("x", size)))
		f.Configure(Options{Chain: true})
		io.WriteString(f, object(3))
		found, r := verify(t, path)
		if r.Last != want || (r.Problems == 0) != (want == 2) {
			t.Errorf("%d: %v, %+v", size, found, r)
		}
	}
}

// Lines are linked to a file that has none yet.
func TestChainSwitchedOnLater(t *testing.T) {
	f, path := open(t, Options{})
	io.WriteString(f, object(1)+object(2))
	f.Configure(Options{Chain: true})
	io.WriteString(f, object(3))
	found, r := verify(t, path)
	if len(found) > 0 || r.BeforeFirst != 2 || r.First != 1 {
		t.Errorf("%v, %+v", found, r)
	}
	b, _ := os.ReadFile(path)
	os.WriteFile(path, bytes.Replace(b, []byte(`{"x":2}`), []byte(`{"x":9}`), 1), 0o600)
	if found, _ := verify(t, path); len(found) != 1 {
		t.Errorf("%v", found)
	}
}

// If another process holds the lock, lines are written nevertheless.
func TestChainWithoutLock(t *testing.T) {
	f, path := open(t, Options{Chain: true})
	unlock, ok, err := f.lock.try(true, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	f.lock.timedOut = true // as after the wait
	io.WriteString(f, object(1))
	if p := f.Status(); !strings.Contains(p.Problem, "without its lock") ||
		time.Since(p.ProblemFrom) > time.Minute {
		t.Errorf("%+v", p)
	}
	unlock()
	io.WriteString(f, object(2))
	if p := f.Status(); p.Problem != "" || !p.ProblemFrom.IsZero() {
		t.Errorf("%+v", p)
	}
	if found, r := verify(t, path); len(found) > 0 || r.Last != 2 {
		t.Errorf("%v, %+v", found, r)
	}
}

func BenchmarkChain(b *testing.B) {
	for _, chain := range []bool{false, true} {
		b.Run(fmt.Sprint(chain), func(b *testing.B) {
			f, err := OpenFile(b.TempDir()+"/audit.jsonl", Options{Chain: chain}, quiet)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			block := bytes.Repeat([]byte(`{"x":"`+strings.Repeat("x", 400)+"\"}\n"), 100)
			b.SetBytes(int64(len(block)))
			b.ReportAllocs()
			for b.Loop() {
				f.Write(block)
			}
		})
	}
}
