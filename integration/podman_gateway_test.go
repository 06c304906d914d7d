//go:build linux && podman

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPodmanContainers_StoppedWithBackend_F_PROC_1 is TestContainers_StoppedWithBackend_F_PROC_1
// with podman. It needs the Debian packages podman, runc and busybox-static, and the rights to
// run containers; it needs no network. See make podman.
func TestPodmanContainers_StoppedWithBackend_F_PROC_1(t *testing.T) {
	dir, err := os.MkdirTemp("", "pod") // podman limits the length of the path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	podman := func(words ...string) []string {
		return append([]string{"--root", filepath.Join(dir, "root"), "--runroot",
			filepath.Join(dir, "run"),
			"--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs"},
			words...)
	}
	do := func(words ...string) string {
		out, err := exec.Command("podman", podman(words...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("podman %q: %v: %s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	rootfs := filepath.Join(dir, "rootfs")
	script := `mkdir -p "$0/bin" && cp "$(command -v busybox)" "$0/bin/" && for a in sh sed sleep; do ln -s busybox "$0/bin/$a"; done &&
		tar -C "$0" -cf "$0.tar" .`
	if out, err := exec.Command("sh", "-c", script, rootfs).CombinedOutput(); err != nil {
		t.Fatalf("image: %v: %s", err, out)
	}
	do("import", rootfs+".tar", "localhost/unstoppable:1")
	testContainersStop(t, func(t *testing.T, options ...string) containerEngine {
		label := "test=" + itoa(markerCount.Add(1))
		// Lower than the caller's limits, whatever these are: podman must not raise any.
		args := podman(append([]string{"run", "-i", "--rm", "--label", label, "--network", "none",
			"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"}, options...)...)
		return containerEngine{
			backend{Name: "pod", Command: "podman",
				Args: append(args, "localhost/unstoppable:1", "/bin/sh", "-c", unstoppableServer),
				Env:  map[string]string{"HOME": os.Getenv("HOME")}},
			func() []string { return strings.Fields(do("ps", "-aq", "--filter", "label="+label)) },
		}
	})
}
