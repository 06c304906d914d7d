package httpclient

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe, a device, a directory, and a file of more than maxPEM bytes are rejected, without waiting
// for a writer.
func TestTLSFilesAreRegular(t *testing.T) {
	dir := t.TempDir()
	pipe, long, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "long"), filepath.Join(dir,
		"link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(long, maxPEM+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "is a pipe or a device", link: "is a pipe or a device",
		"/dev/zero": "is a pipe or a device",
		dir:         "is a directory", long: "is longer than 16 MiB", filepath.Join(dir,
			"none"): "no such file",
	} {
		for key, files := range map[string]ClientTLS{"tls.ca": {CA: path},
			"tls.cert": {Cert: path, Key: path}} {
			if _, err := files.Config(); err == nil ||
				!strings.HasPrefix(err.Error(), key+": "+path+": "+want) {
				t.Errorf("%s %s: %v", key, path, err)
			}
		}
	}
}
