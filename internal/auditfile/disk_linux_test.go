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
	"strings"
	"syscall"
	"testing"
)

// A full disk is survived: lost lines are reported, writing and compression continue by themselves
// when there is room, each failure is logged once, and the chain is complete. The disk is a small
// tmpfs, which another process of this test mounts in a namespace of its own.
func TestFullDisk(t *testing.T) {
	dir := os.Getenv("LOGS_TEST_DISK")
	if dir != "" {
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
			t.Fatal(err)
		}
		fillDisk(t, filepath.Join(dir, "audit.jsonl"))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), "LOGS_TEST_DISK="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, os.ErrPermission) && os.Getenv("TEST_FULL_DISK") == "" {
		t.Skip("namespaces of users are not permitted here:", err)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestFullDisk")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// fillDisk fills the disk of path, writes lines to it, and makes room again.
func fillDisk(t *testing.T, path string) {
	var log bytes.Buffer
	f, err := OpenFile(path, Options{MaxSize: 60 << 10, Chain: true},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	filler := filepath.Join(filepath.Dir(path), "filler")
	fill := func() {
		out, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		for err == nil {
			_, err = out.Write(make([]byte, 4096))
		}
	}
	line := func(i int) string {
		return fmt.Sprintf(`{"x":%d,"y":%q}`+"\n", i, strings.Repeat("y", 500))
	}
	written := 0
	for i := range 150 { // 80 kB: one former file, and a file that ends within a page
		if _, err := io.WriteString(f, line(i)); err != nil {
			t.Fatal(err)
		}
		written++
	}
	fill()
	lost := 0
	for i := range 100 {
		block := line(i) + line(i) + line(i)
		n, err := io.WriteString(f, block)
		written += strings.Count(block[:n], "\n")
		if err != nil {
			lost++
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		}
	}
	if lost < 50 || !strings.Contains(f.Status().Problem, "no space left") {
		t.Errorf("%d lost, %+v", lost, f.Status())
	}
	c := compressor{path, &f.lock, Gzip}
	if err := c.run(t.Context()); !errors.Is(err, syscall.ENOSPC) ||
		exists(path+".compress.tmp") {
		t.Errorf("compression: %v", err)
	}
	os.Remove(filler)
	for i := range 30 {
		if _, err := io.WriteString(f, line(i)); err != nil {
			t.Fatal(err)
		}
		written++
	}
	if err := c.run(t.Context()); err != nil || !exists(path+".1.gz") {
		t.Error(err, names(path))
	}
	if p := f.Status().Problem; p != "" {
		t.Error(p)
	}
	if a, b := strings.Count(log.String(), "not writable"),
		strings.Count(log.String(), "writable again"); a != 1 || b != 1 {
		t.Errorf("logged %d and %d times:\n%s", a, b, &log)
	}
	found, r := verify(t, path)
	if r.Problems > 0 || r.Records != written {
		t.Errorf("%v, %+v, %d records were written", found, r, written)
	}
}

// Errors of the disk other than a full disk are reported in the same way.
func TestBrokenDisk(t *testing.T) {
	var log bytes.Buffer
	f, err := OpenFile("/dev/full", Options{Chain: true}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 10 {
		if n, err := io.WriteString(f, object(1)); n != 0 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d, %v", n, err)
		}
	}
	if strings.Count(log.String(), "level=ERROR") != 1 || exists("/dev/full.lock") {
		t.Errorf("log:\n%s", &log)
	}
	s := f.Status()
	if s.Written != 0 || !strings.HasPrefix(s.Problem, "audit file not writable: records lost: ") {
		t.Errorf("%+v", s)
	}
}
