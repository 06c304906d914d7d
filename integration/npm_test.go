//go:build unix

package integration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

const (
	npmTimeout = 15 * time.Minute // a cold cache fetches about 350 MB
	npmHint    = "hint: these tests run real MCP servers and clients; install Node.js 20 or newer together with npm " +
		"(Debian: apt-get install nodejs npm; macOS: brew install node), then run go test again"
)

// errNPM is the reason why the npm packages are missing; set by TestMain before any test runs.
var errNPM error

// installNPM installs the packages of package-lock.json in node_modules. It does nothing if that
// was done before, and waits if another test process is doing it.
//
// Install scripts are disabled, because nothing here needs one. The native binaries (Node 22,
// Claude Code) are in packages of their own, selected by os and cpu, and are run from there
// instead of through the copies that scripts would make.
func installNPM(dir string) error {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(lock)
	want := hex.EncodeToString(sum[:])
	stamp := filepath.Join(dir, "node_modules", ".installed-for-lock")

	// Not inside node_modules, which npm ci removes.
	dirSum := sha256.Sum256([]byte(dir))
	mutex := lockedfile.MutexAt(filepath.Join(os.TempDir(),
		"mcpgateway-npm-"+hex.EncodeToString(dirSum[:8])+".lock"))
	unlock, err := mutex.Lock()
	if err != nil {
		return fmt.Errorf("npm: lock: %w", err)
	}
	defer unlock()

	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is not on PATH\n%s", npmHint)
	}
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("node is not on PATH\n%s", npmHint)
	}

	fmt.Fprintf(os.Stderr,
		"integration: npm ci in %s: the real servers and clients, about 700 MB on disk, once ...\n",
		dir)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), npmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund",
		"--no-progress", "--loglevel=error")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("gave up after %v", npmTimeout)
	}
	if err != nil {
		return fmt.Errorf("npm ci in %s: %w\n%s", dir, err, out)
	}
	fmt.Fprintf(os.Stderr, "integration: npm ci: done in %v\n",
		time.Since(began).Round(100*time.Millisecond))
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// needNPM fails the test if the packages are missing. With -short, which requests a run without
// Node, npm and network, it skips the test instead.
func needNPM(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test runs packages of npm")
	}
	if errNPM != nil {
		t.Fatalf("integration: %v", errNPM)
	}
}

// module returns the path of a file inside node_modules.
func module(t testing.TB, elem ...string) string {
	t.Helper()
	needNPM(t)
	path := filepath.Join(append([]string{packageDir, "node_modules"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("integration: %v; remove integration/node_modules and run go test again", err)
	}
	return path
}

// node returns the path of a Node of at least 22.19, which the Inspector requires: the one from
// npm, or else the machine's.
func node(t testing.TB) string {
	t.Helper()
	needNPM(t)
	path, err := findNode()
	if err != nil {
		t.Fatalf("integration: %v", err)
	}
	return path
}

var findNode = sync.OnceValues(func() (string, error) {
	for _, pkg := range []string{"node-" + npmPlatform(), "node-bin-" + npmPlatform()} {
		path := filepath.Join(packageDir, "node_modules", pkg, "bin", "node")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node is not on PATH\n" + npmHint)
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	v := regexp.MustCompile(`^v(\d+)\.(\d+)`).FindSubmatch(out)
	if v == nil {
		return "", fmt.Errorf("%s --version prints %q", path, out)
	}
	major, _ := strconv.Atoi(string(v[1]))
	minor, _ := strconv.Atoi(string(v[2]))
	if major < 22 || major == 22 && minor < 19 {
		return "",
			fmt.Errorf(
				"no Node 22 from npm for %s, and the one on PATH is %s\nhint: install Node.js 22.19 or newer", npmPlatform(), out)
	}
	return path, nil
})

// npmPlatform returns GOOS-GOARCH in npm's spelling.
func npmPlatform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}
