package reload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/config"
)

// testConfig returns a configuration with a state directory of its own.
func testConfig(t *testing.T, names ...string) (c *config.Config, file string) {
	t.Helper()
	all := config.Default()
	c = &all
	c.StateDir = filepath.Join(t.TempDir(), "state")
	for _, name := range names {
		c.Backends = append(c.Backends, config.Backend{Name: name, Enabled: true, Command: "x",
			Env: map[string]string{"TOKEN": "hush-hush-hush"}})
	}
	return c, filepath.Join(t.TempDir(), "gateway.yaml")
}

func TestRunningConfig(t *testing.T) {
	c, file := testConfig(t, "a", "b")
	if _, err := ReadRunningConfig(c.StateDir, file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a record: %v", err)
	}
	if err := WriteRunningConfig(file, c, []string{"listen"}); err != nil {
		t.Fatal(err)
	}
	path := RunningConfigPath(c.StateDir, file)
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
	a, err := ReadRunningConfig(c.StateDir, file)
	if err != nil || a.PID != os.Getpid() || a.File != file || len(a.Flags) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if changes := a.Diff(c); !changes.IsEmpty() {
		t.Errorf("nothing has changed, but %+v", changes)
	}
	c.Backends[1].Env["TOKEN"] = "another"
	if changes := a.Diff(c); len(changes.Changed) != 1 || changes.Changed[0].Name != "b" ||
		changes.Changed[0].Keys[0] != "env.TOKEN" {
		t.Errorf("%+v", changes)
	}
	if err := WriteRunningConfig("", c, nil); err != nil {
		t.Error(err)
	}
	c.StateDir = ""
	if err := WriteRunningConfig(file, c, nil); err != nil {
		t.Error(err)
	}
}

// A damaged record is an error, and the next record replaces it.
func TestRunningConfigDamaged(t *testing.T) {
	c, file := testConfig(t, "a")
	if err := WriteRunningConfig(file, c, nil); err != nil {
		t.Fatal(err)
	}
	path := RunningConfigPath(c.StateDir, file)
	good, _ := os.ReadFile(path)
	for _, text := range [][]byte{nil, []byte("{}"), good[:len(good)/2], []byte(`{"version":2}`),
		[]byte("[]"), bytes.Repeat([]byte(" "), maxRunningConfig+1), {0}} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := ReadRunningConfig(c.StateDir, file); err == nil {
			t.Errorf("%.40q: %+v", text, a)
		}
		if err := WriteRunningConfig(file, c, nil); err != nil { // replaces the damaged record
			t.Fatal(err)
		}
		if _, err := ReadRunningConfig(c.StateDir, file); err != nil {
			t.Error(err)
		}
	}
	_ = os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRunningConfig(c.StateDir, file); err == nil {
		t.Error("a directory was read")
	}
	if err := WriteRunningConfig(file, c, nil); err == nil {
		t.Error("a directory was written")
	}
}

func TestRunningConfigOfSeveralGateways(t *testing.T) {
	c, file := testConfig(t, "a", "b", "c")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if err := WriteRunningConfig(file, c, nil); err != nil {
					t.Error(err)
				}
				if _, err := ReadRunningConfig(c.StateDir, file); err != nil {
					t.Error(err)
				}
			}
			_ = WriteRunningConfig(fmt.Sprint(file, i), c, nil)
		})
	}
	all.Wait()
	if entries, _ := os.ReadDir(filepath.Dir(RunningConfigPath(c.StateDir,
		file))); len(entries) != 9 {
		t.Errorf("%d files", len(entries))
	}
}

func TestRunningConfigsAreBounded(t *testing.T) {
	c, file := testConfig(t, "a")
	dir := filepath.Dir(RunningConfigPath(c.StateDir, file))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range keptRunningConfigs + 20 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Duration(i+1) * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteRunningConfig(file, c, nil); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	_, newest := os.Stat(filepath.Join(dir, "0"))
	_, oldest := os.Stat(filepath.Join(dir, fmt.Sprint(keptRunningConfigs+19)))
	if _, err := ReadRunningConfig(c.StateDir, file); err != nil ||
		len(entries) != keptRunningConfigs || newest != nil || oldest == nil {
		t.Errorf("%d files, %v %v %v", len(entries), err, newest, oldest)
	}
}

func FuzzRunningConfig(f *testing.F) {
	f.Add(
		[]byte(
			`{"version":1,"file":"/x","pid":1,"time":"2026-01-02T03:04:05Z","flags":["listen"],"salt":"s","keys":{"listen":"x"},` +
				`"backends":[{"name":"a","enabled":true,"keys":{"command":"y"}},{"name":"a"},{"name":""}]}`))
	f.Add([]byte(`{"version":1,"keys":null,"backends":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		running, err := parseRunningConfig(text)
		if err != nil {
			return
		}
		c := config.Default()
		c.Backends = []config.Backend{{Name: "a", Enabled: true}, {Name: "b"}}
		running.Diff(&c, running.Flags...)
	})
}
