package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func checkFiles(t *testing.T, dir string, want int) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
		t.Errorf("%d files, want %d: %v", len(entries), want, err)
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "two"} {
		if err := Write(path, []byte(text), Options{Sync: text == "two"}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	for part, want := range map[string]fs.FileMode{dir: 0o700, path: 0o600} {
		if info, err := os.Stat(part); err != nil || info.Mode().Perm() != want &&
			runtime.GOOS != "windows" {
			t.Errorf("%s: %v, %v", part, info.Mode(), err)
		}
	}
	failed := errors.New("check failed")
	if err := Write(path, []byte("three"),
		Options{Check: func() error { return failed }}); err != failed {
		t.Error(err)
	}
	if err := Write(dir, []byte("three"), Options{}); err == nil {
		t.Error("a directory was replaced")
	}
	if got := read(t, path); got != "two" {
		t.Errorf("%q after a failed check", got)
	}
	checkFiles(t, dir, 1)
	checkFiles(t, filepath.Dir(dir), 1)
}

func TestWriteToALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("one"), Options{FollowLink: true}); err == nil {
		t.Error("a dangling link was followed")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("one"), Options{FollowLink: true}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "one" {
		t.Errorf("%q behind the link", got)
	}
	if err := Write(link, []byte("two"), Options{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "one" {
		t.Errorf("%q behind a link that was replaced", got)
	}
	if info, err := os.Lstat(link); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := Write(dir, nil, Options{FollowLink: true}); err == nil {
		t.Error("a directory was replaced")
	}
}

// If several goroutines call Create at the same time, only one creates the file.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var all sync.WaitGroup
	created := make(chan string, 8)
	for i := range 8 {
		all.Go(func() {
			text := fmt.Sprint(i)
			switch err := Create(path, []byte(text), ""); {
			case err == nil:
				created <- text
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(created)
	if n := len(created); n != 1 {
		t.Fatalf("created %d times", n)
	}
	if got, want := read(t, path), <-created; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	checkFiles(t, dir, 1)
}

func TestKeepNewest(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	keepNewest(dir, 3)
	checkFiles(t, dir, 4) // with the directory
	for i := range 3 {
		read(t, filepath.Join(dir, fmt.Sprint(i)))
	}
	keepNewest(filepath.Join(dir, "missing"), 3)
}

// ReadRecord reads only regular files up to the limit.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	if _, err := ReadRecord(path, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := ReadRecord(dir, 4); err == nil {
		t.Error("a directory is read")
	}
	if err := WriteRecord(path, []byte("1234"), 1); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadRecord(path, 4); err != nil || string(data) != "1234" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := ReadRecord(path, 3); err == nil {
		t.Error("a file above the limit is read")
	}
}

// With Mode, a new file has these permissions, whatever the umask is, and an existing file keeps
// its own.
func TestWriteWithMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no permissions of this kind")
	}
	path := filepath.Join(t.TempDir(), "x")
	for _, want := range []os.FileMode{0o664, 0o600} {
		if err := Write(path, []byte("a"), Options{Mode: 0o664}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v, %v, want %v", info, err, want)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
