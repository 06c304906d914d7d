package auditfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"mcpgateway/internal/filelock"
)

// If an environment variable is set, TestMain acts as another gateway that writes to the same file.
func TestMain(m *testing.M) {
	if path := os.Getenv("LOGS_TEST_APPEND"); path != "" {
		if err := appendLines(path, os.Getenv("LOGS_TEST_NAME")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv("LOGS_TEST_FOREVER"); path != "" {
		chain := os.Getenv("LOGS_TEST_CHAIN") == "true"
		fmt.Fprintln(os.Stderr, appendForever(path, os.Getenv("LOGS_TEST_NAME"), chain))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var quiet = slog.New(slog.DiscardHandler)

const linesEach = 500

func appendLines(path, name string) error {
	f, err := OpenFile(path, Options{MaxSize: 4096, Keep: Keep{Files: 1000}}, quiet)
	if err != nil {
		return err
	}
	for i := range linesEach {
		if _, err := fmt.Fprintf(f, "%s %d %s\n", name, i, strings.Repeat("x", i%200)); err != nil {
			return err
		}
	}
	return f.Close()
}

// CONC-11: several gateways share an audit file that is rotated continually. Each line is written
// once and completely.
func TestFileOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state", "audit.jsonl")
	var wg sync.WaitGroup
	const processes = 4
	for i := range processes {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "LOGS_TEST_APPEND="+path,
				fmt.Sprintf("LOGS_TEST_NAME=p%d", i))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		wg.Go(func() { // two Files in one process
			if err := appendLines(path, fmt.Sprintf("f%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	files, _ := Files(path)
	seen := map[string]int{}
	for _, name := range files {
		all, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(all)) {
			var who, fill string
			var i int
			fmt.Sscan(line, &who, &i, &fill)
			if line != fmt.Sprintf("%s %d %s\n", who, i, strings.Repeat("x", i%200)) {
				t.Errorf("%s: broken line %q", name, line)
			}
			seen[fmt.Sprint(who, i)]++
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d times", id, n)
		}
	}
	if want := 2 * processes * linesEach; len(seen) != want || len(files) < 20 {
		t.Errorf("%d lines of %d in %d files", len(seen), want, len(files))
	}
}

func open(t *testing.T, o Options) (*File, string) {
	path := filepath.Join(t.TempDir(), "new", "audit.jsonl")
	f, err := OpenFile(path, o, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, path
}

// content returns the content of the file and its backups, newest first.
func content(path string, n int) string {
	var all []string
	for i := range n {
		name := path
		if i > 0 {
			name = fmt.Sprint(path, ".", i)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte("-")
		}
		all = append(all, strings.ReplaceAll(string(b), "\n", "|"))
	}
	return strings.Join(all, " ")
}

func TestFileRotates(t *testing.T) {
	f, path := open(t, Options{MaxSize: 4, Keep: Keep{Files: 2}})
	for i := range 8 {
		fmt.Fprintf(f, "%d\n", i)
	}
	if got := content(path, 4); got != "6|7| 4|5| 2|3| -" {
		t.Errorf("got %s", got)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for name, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600,
		path + ".1": 0o600, path + ".lock": 0o600} {
		if at, err := os.Stat(name); err != nil || at.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, at.Mode(), err)
		}
	}
}

// An interrupted rotation leaves a gap. The next rotation fills the gap and drops no file.
func TestFileRotatesIntoGap(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1, Keep: Keep{Files: 3}})
	os.WriteFile(path+".2", []byte("old\n"), 0o600)
	os.WriteFile(path+".3", []byte("older\n"), 0o600)
	io.WriteString(f, "a\n")
	io.WriteString(f, "b\n")
	if got := content(path, 4); got != "b| a| old| older|" {
		t.Errorf("got %s", got)
	}
}

func TestFileRenamedByOthers(t *testing.T) {
	f, path := open(t, Options{})
	io.WriteString(f, "a\n")
	os.Rename(path, path+".1")
	io.WriteString(f, "b\n")
	os.Remove(path)
	io.WriteString(f, "c\n")
	if got := content(path, 2); got != "c| a|" {
		t.Errorf("got %s", got)
	}
}

// While another process rotates, or if rotation fails, lines are still written.
func TestFileGrowsIfRotationFails(t *testing.T) {
	t.Parallel()
	f, path := open(t, Options{MaxSize: 1})
	unlock, ok, err := filelock.TryLock(path + ".lock")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	io.WriteString(f, "a\n")
	io.WriteString(f, "b\n")
	if _, ok, err := filelock.TryLock(path + ".lock"); ok || err != nil {
		t.Errorf("the lock was taken twice (%v)", err)
	}
	unlock()
	io.WriteString(f, "c\n")
	if got := content(path, 2); got != "c| a|b|" {
		t.Errorf("got %s", got)
	}
}

func TestFileEndsIncompleteLine(t *testing.T) {
	f, path := open(t, Options{})
	io.WriteString(f, "cut sho") // as after a write to a full disk
	if n, err := io.WriteString(f, "whole\n"); n != 6 || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if got := content(path, 1); got != "cut sho|whole|" {
		t.Errorf("got %s", got)
	}
}

func TestFileClosed(t *testing.T) {
	f, _ := open(t, Options{})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write: %v", err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

func BenchmarkFile(b *testing.B) {
	f, err := OpenFile(filepath.Join(b.TempDir(), "audit.jsonl"), Options{}, quiet)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := append(bytes.Repeat([]byte("x"), 300), '\n')
	b.ReportAllocs()
	for b.Loop() {
		f.Write(line)
	}
}

// A removed directory is created again. If that fails, each write returns an error.
func TestFileInRemovedDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a directory with an open file cannot be removed")
	}
	f, path := open(t, Options{})
	fmt.Fprintln(f, "one")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, "two"); err != nil {
		t.Fatal(err)
	}
	if got := content(path, 1); got != "two|" {
		t.Errorf("got %s", got)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, "three"); err == nil {
		t.Error("a lost line is not reported")
	}
}
