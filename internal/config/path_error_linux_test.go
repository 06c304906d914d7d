package config

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// The hint about a pipe with a relative name does not mention the folder, because the pipe was
// found.
func TestHintForAnExistingRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("cert", 0o600); err != nil {
		t.Fatal(err)
	}
	l := &Loaded{Config: new(Config)}
	if e := l.PathError("tls.cert", "cert", os.ErrInvalid, "name a file"); e.Hint != "name a file" {
		t.Error(e.Hint)
	}
	if e := l.PathError("tls.cert", "none", os.ErrNotExist,
		"name a file"); !strings.Contains(e.Hint, "relative path") {
		t.Error(e.Hint)
	}
}
