package auditfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// line returns a line with a time.
func line(at time.Time, text string) string {
	return fmt.Sprintf(`{"time":%q,"x":%q}`+"\n", at.UTC().Format(time.RFC3339Nano), text)
}

// names returns the base names of all files at path but the locks.
func names(path string) string {
	files, _ := filepath.Glob(path + "*")
	var all []string
	for _, file := range files {
		if !strings.HasSuffix(file, ".lock") {
			all = append(all, strings.TrimPrefix(file, path))
		}
	}
	return strings.Join(all, " ")
}

// A file is rotated when its first line has the age MaxAge: by the next Write, and by Run if
// nothing is written. Lines without a time at its beginning do not count. If the clock was set
// back, the age counts from the moment at which the file is read first.
func TestFileRotatesOldFile(t *testing.T) {
	const age = time.Hour
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the initial time of synctest
	for name, tc := range map[string]struct {
		content string
		wait    time.Duration
		want    bool
	}{
		"young":          {line(start.Add(-age/2), "a"), age / 4, false},
		"old":            {line(start.Add(-age), "a"), 0, true},
		"cut at first":   {"cut sho\n" + line(start.Add(-age), "a"), 0, true},
		"no time":        {"a\n" + strings.Repeat("b", maxSearchedTime), 0, false},
		"no time, later": {"a\n", age, true},
		"future":         {line(start.Add(1000*age), "a"), age / 2, false},
		"future, later":  {line(start.Add(1000*age), "a"), age, true},
		"empty":          {"", 2 * age, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			os.WriteFile(path, []byte(tc.content), 0o600)
			f, err := OpenFile(path, Options{MaxAge: age}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if tc.content != "" {
				f.isPathDue() // the file is read for the first time
			}
			time.Sleep(tc.wait)
			io.WriteString(f, "next\n")
			f.Close()
			if got := exists(path + ".1"); got != tc.want {
				t.Errorf("%s: rotated: %v, want %v", name, got, tc.want)
			}
		})
	}
}

// Run rotates a file to which nothing is written, at most a second after it has its age.
func TestRunRotatesQuietFile(t *testing.T) {
	t.Parallel()
	f, path := open(t, Options{MaxAge: time.Second})
	io.WriteString(f, line(time.Now().Add(-500*time.Millisecond), "a"))
	done := run(t, f)
	defer done()
	await(t, func() bool { return exists(path + ".1") })
	if got := content(path, 2); !strings.HasPrefix(got, " {") { // the new file is empty
		t.Errorf("got %s", got)
	}
	io.WriteString(f, "b\n")
	if got := names(path); got != " .1" {
		t.Errorf("got %s", got)
	}
}

// run runs f and returns a function that ends it.
func run(t *testing.T, f *File) (end func()) {
	ctx, cancel := contextOf(t)
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// await waits until ok returns true.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// Former files are kept by number, age and total size.
func TestKeep(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		keep Keep
		want string
	}{
		"default":         {Keep{}, " .1 .2 .3 .4 .5"},
		"files":           {Keep{Files: 2}, " .1 .2"},
		"more files":      {Keep{Files: 20}, " .1 .2 .3 .4 .5 .6 .7"},
		"age":             {Keep{Age: 150 * time.Minute}, " .1 .2 .3"},
		"age and files":   {Keep{Age: 150 * time.Minute, Files: 2}, " .1 .2"},
		"size":            {Keep{Size: 35}, " .1 .2 .3 .4"},
		"size of nothing": {Keep{Size: 1}, ""},
		"all":             {Keep{Files: 5, Age: time.Hour * 3 / 2, Size: 1000}, " .1 .2"},
	} {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		for i := 1; i <= 6; i++ { // 10 bytes each, one per hour
			file := fmt.Sprint(path, ".", i)
			os.WriteFile(file, []byte("0123456789"), 0o600)
			at := now.Add(-time.Duration(i) * time.Hour)
			os.Chtimes(file, at, at)
		}
		f, err := OpenFile(path, Options{MaxSize: 5, Keep: tc.keep}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, "abcd\n")
		io.WriteString(f, "e\n")
		f.Close()
		if got := names(path); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		former, err := formerFiles(path)
		if err != nil || len(former) > 0 && former[0].info.Size() != 5 {
			t.Errorf("%s: %v, %v", name, former, err)
		}
	}
}

// Run removes files that become too old, and files beyond limits that Configure has lowered.
func TestRunRemovesFormerFiles(t *testing.T) {
	t.Parallel()
	f, path := open(t, Options{Keep: Keep{Files: 4}})
	for i := 1; i <= 4; i++ {
		file := fmt.Sprint(path, ".", i)
		os.WriteFile(file, []byte("0123456789"), 0o600)
		at := time.Now().Add(time.Duration(-i) * time.Hour)
		os.Chtimes(file, at, at)
	}
	done := run(t, f)
	defer done()
	f.Configure(Options{Keep: Keep{Files: 3}})
	await(t, func() bool { return names(path) == " .1 .2 .3" })
	f.Configure(Options{Keep: Keep{Files: 3, Age: 2*time.Hour + time.Second}})
	await(t, func() bool { return names(path) == " .1 .2" })
	await(t, func() bool { return names(path) == " .1" })
}

// Configure changes the size at which an open file is rotated.
func TestConfigure(t *testing.T) {
	f, path := open(t, Options{})
	io.WriteString(f, "abc\n")
	io.WriteString(f, "d\n")
	f.Configure(Options{MaxSize: 6})
	io.WriteString(f, "e\n")
	if got := content(path, 2); got != "e| abc|d|" {
		t.Errorf("got %s", got)
	}
}

// After hundreds of rotations the newest files are there, in order.
func TestHundredsOfRotations(t *testing.T) {
	f, path := open(t, Options{MaxSize: 1, Keep: Keep{Files: 30}})
	const rotations = 400
	for i := range rotations {
		fmt.Fprintln(f, i)
	}
	files, err := Files(path)
	if err != nil || len(files) != 31 {
		t.Fatal(len(files), err)
	}
	for i, file := range files {
		b, _ := os.ReadFile(file)
		if want := fmt.Sprintln(rotations - 31 + i); string(b) != want {
			t.Errorf("%s contains %q, want %q", file, b, want)
		}
	}
}

// Reopen releases a renamed file without a Write.
func TestReopen(t *testing.T) {
	f, path := open(t, Options{})
	io.WriteString(f, "a\n")
	os.Rename(path, path+"-old")
	if err := f.Reopen(); err != nil || !exists(path) {
		t.Error(err, exists(path))
	}
	io.WriteString(f, "b\n")
	if err := f.Reopen(); err != nil {
		t.Error(err)
	}
	io.WriteString(f, "c\n")
	if got := content(path, 1); got != "b|c|" {
		t.Errorf("got %s", got)
	}
	f.Close()
	if err := f.Reopen(); err != os.ErrClosed {
		t.Error(err)
	}
}
