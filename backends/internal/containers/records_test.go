//go:build unix

package containers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Only records of gateways that have ended are used. Records that are damaged or too large are
// removed, and also records of ended gateways that are too old or too many.
func TestContainerRecords_F_PROC_1(t *testing.T) {
	over := func(owner []byte) bool { return string(owner) == `"over"` }
	now := time.Now()
	write := func(t *testing.T, dir, name, engine, owner string) string {
		t.Helper()
		text, err := json.Marshal(Container{
			Version: recordVersion, Engine: strings.Fields(engine), CIDFile: "/c",
			Owner: json.RawMessage(fmt.Sprintf("%q", owner)),
		})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		engine, owner string
		change        func(path string) error
		left, kept    bool
	}{
		"F-PROC-1 of an ended gateway":  {"docker -H x", "over", nil, true, true},
		"F-PROC-1 of a running gateway": {"docker", "runs", nil, false, true},
		"F-PROC-1 another program":      {"rm -rf", "over", nil, false, false},
		"F-PROC-1 also a command":       {"docker rm", "over", nil, false, false},
		"F-PROC-1 no program":           {"", "over", nil, false, false},
		"F-PROC-1 damaged": {"docker", "over",
			func(p string) error { return os.Truncate(p, 10) }, false, false},
		"F-PROC-1 too large": {"docker", "over",
			func(p string) error { return os.Truncate(p, maxRecord+1) }, false, false},
		"F-PROC-1 too old": {"docker", "over",
			func(p string) error { return os.Chtimes(p, now, now.Add(-recordExpiry-time.Hour)) },
			false, false},
		"F-PROC-1 old, of a running gateway": {"docker", "runs",
			func(p string) error { return os.Chtimes(p, now, now.Add(-recordExpiry-time.Hour)) },
			false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := write(t, dir, "x.json", c.engine, c.owner)
			if c.change != nil {
				if err := c.change(path); err != nil {
					t.Fatal(err)
				}
			}
			if left := orphanedContainers(dir, over, now); (len(left) == 1) != c.left {
				t.Errorf("left: %v", left)
			}
			if _, err := os.Stat(path); (err == nil) != c.kept {
				t.Errorf("the record: %v", err)
			}
		})
	}
	t.Run("F-PROC-1 too many", func(t *testing.T) {
		dir := t.TempDir()
		for i := range maxRecords + 5 {
			write(t, dir, fmt.Sprintf("%d.json", i), "docker", "over")
		}
		if left := orphanedContainers(dir, over, now); len(left) != maxRecords {
			t.Errorf("left: %d", len(left))
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != maxRecords {
			t.Errorf("kept: %d, %v", len(entries), err)
		}
	})
}

// Only a small regular file can contain the id of a container.
func TestContainerFileIsRegular(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxCIDFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, large, dir} {
		ct := &Container{Engine: []string{"docker"}, CIDFile: path}
		if err := ct.stop(t.Context(), nil, "0"); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}

// A record that another user has written to the state directory runs no program and removes no
// other file. The engine of a record must be the engine of a backend or a name in PATH, and its
// file must be in the same directory or be the file of a backend.
func TestUntrustedContainerRecords(t *testing.T) {
	env := func() []string { return nil }
	all := []Backend{
		{Name: "a", Command: "docker", Args: []string{"-H", "tcp://h", "run", "-i", "x"},
			Cwd: "/srv", Env: env},
		{Name: "b", Command: "/opt/bin/podman",
			Args: []string{"run", "-i", "--cidfile", "id", "x"}, Cwd: "/srv", Env: env},
	}
	for _, c := range []struct {
		engine, file string
		want         bool
		dir          string
	}{
		{"docker", "/state/x.cid", true, ""},
		{"podman", "/state/x.cid", true, ""},
		{"./tools/docker", "/state/x.cid", false, ""},
		{"/tmp/docker", "/state/x.cid", false, ""},
		{"docker --config /tmp", "/state/x.cid", false, ""},
		{"docker -H tcp://h", "/state/x.cid", true, "/srv"},
		{"docker -H ssh://other", "/state/x.cid", false, ""},
		{"sudo docker", "/state/x.cid", false, ""},
		{"docker", "/home/user/file", false, ""},
		{"docker", "/state/../home/x.cid", false, ""},
		{"/opt/bin/podman", "/srv/id", true, "/srv"},
		{"/opt/bin/podman", "/state/x.cid", true, "/srv"},
		{"/opt/bin/podman", "/srv/other", false, ""},
		{"docker", "/srv/id", false, ""},
	} {
		ct := &Container{Engine: strings.Fields(c.engine), CIDFile: c.file, Dir: "/evil"}
		if got := ct.isTrusted(all, "/state"); got != c.want ||
			got && ct.Dir != c.dir {
			t.Errorf("%s %s: %t in %q, want %t in %q", c.engine, c.file, got, ct.Dir, c.want, c.dir)
		}
	}
}
