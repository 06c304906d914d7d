//go:build unix

package config

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A file that the user did not name must be regular, because opening a pipe blocks.
func TestFoundFilesMustBeRegular(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"is a pipe, and must be a regular file or a link to one"},
		{"socket", func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}, "is a socket, and must be"},
		{"device", func(path string) error { return os.Symlink("/dev/zero", path) },
			"is a device, and must be"},
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
		{"long", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<30)
		}, "it is longer than 64 MiB"},
		{"link", func(path string) error {
			if err := os.WriteFile(path+".real", []byte("state: here\n"), 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".real", path)
		}, ""},
	} {
		for _, place := range []string{"gateway.yaml", "mcp-gateway/config.yaml"} {
			dir, err := os.MkdirTemp("", "c") // paths of sockets must be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			path := filepath.Join(dir, place)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tc.make(path); err != nil {
				t.Fatal(err)
			}
			opts := Options{Dir: dir, Env: lookup(map[string]string{"XDG_CONFIG_HOME": dir})}
			loaded, err := Load(opts)
			switch {
			case tc.want == "" && (err != nil || loaded.Config.State != "here"):
				t.Errorf("%s at %s: %v", tc.name, place, err)
			case tc.want != "" &&
				(err == nil || !strings.HasPrefix(err.Error(), path+": "+tc.want)):
				t.Errorf("%s at %s: got %v, want %s", tc.name, place, err, tc.want)
			}
			if _, err := ReadFile(path); (err != nil) != (tc.want != "") {
				t.Errorf("%s at %s: ReadFile: %v", tc.name, place, err)
			}
		}
	}
}

// A named pipe is read, with a time limit.
func TestNamedPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := readNamed(path, 20*time.Millisecond, maxFile)
	want := "is a pipe, and did not end within 20ms: close its writing end, or name a file"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	w, err := os.OpenFile(path, os.O_WRONLY, 0) // the abandoned read has the pipe open
	if err != nil {
		t.Fatal(err)
	}
	w.Close()

	path += "2" // the abandoned read may consume the data of the first pipe
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(path, []byte("state: piped\n"), 0) }()
	loaded, err := Load(Options{Path: path, Env: lookup(nil)})
	if err != nil || loaded.Config.State != "piped" {
		t.Errorf("a pipe that is written: %v", err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/dev/zero", filepath.Dir(path)} {
		if _, err := readNamed(path, time.Minute, 1<<20); err == nil {
			t.Errorf("%s was read to its end", path)
		}
	}
}
