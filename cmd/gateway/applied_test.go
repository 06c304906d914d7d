package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/config"
)

// running is a configuration whose record is kept in a directory of its own.
func running(t *testing.T, names ...string) (c *config.Config, file string) {
	t.Helper()
	all := config.Default()
	c = &all
	c.StateDir = filepath.Join(t.TempDir(), "state")
	for _, name := range names {
		c.Backends = append(c.Backends, config.Backend{Name: name, Enabled: true, Command: "x", Env: map[string]string{"TOKEN": "hush-hush-hush"}})
	}
	return c, filepath.Join(t.TempDir(), "gateway.yaml")
}

func TestAppliedRecord(t *testing.T) {
	c, file := running(t, "a", "b")
	if _, err := readApplied(c.StateDir, file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before there is one: %v", err)
	}
	if err := writeApplied(file, c, []string{"listen"}); err != nil {
		t.Fatal(err)
	}
	path := appliedPath(c.StateDir, file)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("mode %v", mode)
	}
	text, _ := os.ReadFile(path)
	if bytes.Contains(text, []byte("hush")) {
		t.Errorf("a secret: %s", text)
	}
	a, err := readApplied(c.StateDir, file)
	if err != nil || a.PID != os.Getpid() || a.File != file || len(a.Flags) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if changes := a.Diff(c); !changes.IsEmpty() {
		t.Errorf("nothing has changed, but %+v", changes)
	}
	c.Backends[1].Env["TOKEN"] = "another"
	if changes := a.Diff(c); len(changes.Changed) != 1 || changes.Changed[0].Name != "b" || changes.Changed[0].Keys[0] != "env.TOKEN" {
		t.Errorf("%+v", changes)
	}
	if err := writeApplied("", c, nil); err != nil {
		t.Error(err)
	}
	c.StateDir = ""
	if err := writeApplied(file, c, nil); err != nil {
		t.Error(err)
	}
}

// Whatever stands there, nothing worse comes of it than that there is nothing to compare with.
func TestAppliedRecordThatIsDamaged(t *testing.T) {
	c, file := running(t, "a")
	if err := writeApplied(file, c, nil); err != nil {
		t.Fatal(err)
	}
	path := appliedPath(c.StateDir, file)
	good, _ := os.ReadFile(path)
	for _, text := range [][]byte{nil, []byte("{}"), good[:len(good)/2], []byte(`{"version":2}`), []byte("[]"), bytes.Repeat([]byte(" "), maxApplied+1), {0}} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := readApplied(c.StateDir, file); err == nil {
			t.Errorf("%.40q: %+v", text, a)
		}
		if err := writeApplied(file, c, nil); err != nil { // it is written anew
			t.Fatal(err)
		}
		if _, err := readApplied(c.StateDir, file); err != nil {
			t.Error(err)
		}
	}
	_ = os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := readApplied(c.StateDir, file); err == nil {
		t.Error("a directory was read")
	}
	if err := writeApplied(file, c, nil); err == nil {
		t.Error("a directory was written")
	}
}

func TestAppliedRecordsOfSeveralGateways(t *testing.T) {
	c, file := running(t, "a", "b", "c")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if err := writeApplied(file, c, nil); err != nil {
					t.Error(err)
				}
				if _, err := readApplied(c.StateDir, file); err != nil {
					t.Error(err)
				}
			}
			_ = writeApplied(fmt.Sprint(file, i), c, nil)
		})
	}
	all.Wait()
	if entries, _ := os.ReadDir(filepath.Dir(appliedPath(c.StateDir, file))); len(entries) != 9 {
		t.Errorf("%d files", len(entries))
	}
}

func TestAppliedRecordsAreBounded(t *testing.T) {
	c, file := running(t, "a")
	dir := filepath.Dir(appliedPath(c.StateDir, file))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range keepApplied + 20 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Duration(i+1) * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeApplied(file, c, nil); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	_, newest := os.Stat(filepath.Join(dir, "0"))
	_, oldest := os.Stat(filepath.Join(dir, fmt.Sprint(keepApplied+19)))
	if _, err := readApplied(c.StateDir, file); err != nil || len(entries) != keepApplied || newest != nil || oldest == nil {
		t.Errorf("%d files, %v %v %v", len(entries), err, newest, oldest)
	}
}

// A file that is empty is refused by a gateway that runs by it, though it is valid otherwise: the
// backends were said to be removed.
func TestCheckDiffOfAnEmptyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	diff := func(want int, part string) {
		t.Helper()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		errs, _ := os.Create(filepath.Join(dir, "stderr"))
		defer errs.Close()
		code := run(t.Context(), []string{"check", "--diff", "-c", file, "--state", filepath.Join(dir, "state")}, stdio{nil, errs, errs})
		if said, _ := os.ReadFile(errs.Name()); code != want || !strings.Contains(string(said), part) {
			t.Errorf("exit code %d, want %d and %q\n%s", code, want, part, said)
		}
	}
	diff(exitUsage, "gateway.yaml: is empty") // it may have named the directory of the record
	c, _ := running(t, "a")
	c.StateDir = filepath.Join(dir, "state")
	if err := writeApplied(file, c, nil); err != nil {
		t.Fatal(err)
	}
	diff(exitUsage, "gateway.yaml: is empty")
}

func FuzzApplied(f *testing.F) {
	f.Add([]byte(`{"version":1,"file":"/x","pid":1,"time":"2026-01-02T03:04:05Z","flags":["listen"],"salt":"s","keys":{"listen":"x"},` +
		`"backends":[{"name":"a","enabled":true,"keys":{"command":"y"}},{"name":"a"},{"name":""}]}`))
	f.Add([]byte(`{"version":1,"keys":null,"backends":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseApplied(text)
		if err != nil {
			return
		}
		c := config.Default()
		c.Backends = []config.Backend{{Name: "a", Enabled: true}, {Name: "b"}}
		var out strings.Builder
		if err := printChanges(&out, a.Diff(&c, a.Flags...)); err != nil {
			t.Error(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\r\x00") {
			t.Errorf("%q", out.String())
		}
	})
}
