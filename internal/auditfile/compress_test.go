package auditfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/filelock"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// read returns the contents of all files, the oldest first.
func read(t *testing.T, path string) string {
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := decompressed(file, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&all, r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		r.Close()
	}
	return all.String()
}

// Former files are compressed in the background, keep their mode and time, and are rotated further.
func TestCompress(t *testing.T) {
	for form, want := range map[Compression]string{
		Gzip: " .1.gz .2.gz .3.gz", Zstd: " .1.zst .2.zst .3.zst", None: " .1 .2 .3",
	} {
		f, path := open(t, Options{MaxSize: 100, Compress: form})
		done := run(t, f)
		var all strings.Builder
		for i := range 4 {
			text := fmt.Sprintln(i, strings.Repeat("x", 100))
			all.WriteString(text)
			io.WriteString(f, text)
			if form != None && i > 0 {
				await(t, func() bool {
					return !exists(path+".1") && exists(path+".1"+form.suffix())
				})
			}
		}
		if got := names(path); got != want {
			t.Errorf("%s: %s", form, got)
		}
		if got := read(t, path); got != all.String() {
			t.Errorf("%s: got %s", form, got)
		}
		former, _ := formerFiles(path)
		for _, file := range former {
			if age := time.Since(file.info.ModTime()); file.info.Mode().Perm() != 0o600 ||
				age > time.Minute || age < 0 {
				t.Errorf("%s: %v, %v", file.path, file.info.Mode(), file.info.ModTime())
			}
		}
		done()
		if p := f.Status().Problem; p != "" {
			t.Error(p)
		}
	}
}

// An interrupted compression leaves a temporary file, or both forms of a file. Readers count the
// file once, and the next compression cleans up.
func TestInterruptedCompression(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1, Compress: Gzip})
	io.WriteString(f, "a\n")
	io.WriteString(f, "b\n")
	io.WriteString(f, "c\n")
	os.WriteFile(path+".compress.tmp", []byte("half of a fi"), 0o600)
	os.WriteFile(path+".2.gz", []byte("not yet removed .2"), 0o600)
	os.WriteFile(path+".1.zst", []byte("of an older configuration"), 0o600)
	if got := read(t, path); got != "a\nb\nc\n" {
		t.Errorf("got %q", got)
	}
	done := run(t, f)
	await(t, func() bool { return names(path) == " .1.gz .2.gz" })
	done()
	if got := read(t, path); got != "a\nb\nc\n" {
		t.Errorf("got %q", got)
	}
}

// A rotation with both forms of a file removes the compressed form, so that it does not end up
// beside another file.
func TestRotationAfterInterruptedCompression(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1})
	io.WriteString(f, "a\n")
	io.WriteString(f, "b\n")
	os.WriteFile(path+".1.gz", []byte("x"), 0o600)
	io.WriteString(f, "c\n")
	if got := names(path); got != " .1 .2" {
		t.Errorf("got %s", got)
	}
}

// A file that gets another number during its compression, or that is removed, is not confused with
// the file that has its number then.
func TestRotationDuringCompression(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1, Compress: Gzip, Keep: Keep{Files: 3}})
	var want strings.Builder
	done := run(t, f)
	for i := range 300 {
		fmt.Fprintln(f, i)
		if i >= 296 {
			fmt.Fprintln(&want, i)
		}
	}
	await(t, func() bool { return names(path) == " .1.gz .2.gz .3.gz" })
	done()
	if got := read(t, path); got != want.String() {
		t.Errorf("got %q", got)
	}
}

// A line that another process writes late, to a file that was rotated, is not lost.
func TestLateLineDuringCompression(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1})
	io.WriteString(f, "a\n")
	late, err := openAppend(path)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	io.WriteString(f, "b\n")
	c := compressor{path, &f.lock, Gzip}
	unlock, ok, err := f.lock.try(false, 0) // the other process shares the lock
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	done := make(chan error)
	go func() { done <- c.run(t.Context()) }()
	await(t, func() bool { return exists(path + ".compress.tmp") })
	io.WriteString(late, "late\n")
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := read(t, path); got != "a\nlate\nb\n" || names(path) != " .1.gz" {
		t.Errorf("got %q, %s", got, names(path))
	}
}

// Two processes do not compress the same file.
func TestOneProcessCompresses(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1})
	io.WriteString(f, "a\n")
	io.WriteString(f, "b\n")
	unlock, ok, err := filelock.TryLock(path + ".compress.lock")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	c := compressor{path, &f.lock, Gzip}
	if err := c.run(t.Context()); err != nil || names(path) != " .1" {
		t.Errorf("%v, %s", err, names(path))
	}
	unlock()
	if err := c.run(t.Context()); err != nil || names(path) != " .1.gz" {
		t.Errorf("%v, %s", err, names(path))
	}
}

// The end of Run stops a compression, and leaves the file as it was.
func TestEndOfRunStopsCompression(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1})
	io.WriteString(f, strings.Repeat("a", 1<<20)+"\n")
	io.WriteString(f, "b\n")
	ctx, cancel := contextOf(t)
	cancel()
	if err := (&compressor{path, &f.lock, Zstd}).run(ctx); err != nil {
		t.Error(err)
	}
	if err := (&compressor{path, &f.lock, Zstd}).compress(ctx, path+".1",
		path+".compress.tmp"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if b, err := os.ReadFile(path + ".1"); len(b) != 1<<20+1 || err != nil {
		t.Error(len(b), err)
	}
}

// Names that only look like former files are left alone.
func TestForeignFilesAreIgnored(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1, Keep: Keep{Files: 1}, Compress: Gzip})
	for _, suffix := range []string{".01", ".0", ".-1", ".1.bak", ".1.gz.gz", ".gz", "-20261201",
		".x.1"} {
		if err := os.WriteFile(path+suffix, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := strings.Fields(names(path))
	os.Mkdir(filepath.Join(path+".2"), 0o700)
	for i := range 3 {
		fmt.Fprintln(f, i)
	}
	if err := (&compressor{path, &f.lock, Gzip}).run(t.Context()); err != nil {
		t.Error(err)
	}
	if got := len(strings.Fields(names(path))); got != len(before)+2 || !exists(path+".1.gz") {
		t.Errorf("before: %s, after: %s", before, names(path))
	}
}
