//go:build linux

// Package keyringtest starts a real keyring for tests: GNOME Keyring on a session bus of its own.
// It needs the Debian packages gnome-keyring and dbus-daemon, which .ci/run installs.
package keyringtest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Keyring is a running keyring, empty at first.
type Keyring struct {
	// Env are the variables with which a process finds the keyring: NAME=value. HOME is not among
	// them.
	Env []string
	// PID is the process id of the keyring.
	PID int
}

const password = "password of the test keyring"

// script starts a keyring with the password in $1. It prints the address of the session bus and the
// process id of the keyring, and ends when its stdin is closed.
const script = `printf %s "$1" | gnome-keyring-daemon --unlock --components=secrets >/dev/null || exit
attempts=0
until pid=$(dbus-send --session --print-reply=literal --dest=org.freedesktop.DBus / \
	org.freedesktop.DBus.GetConnectionUnixProcessID string:org.freedesktop.secrets 2>/dev/null)
do
	attempts=$((attempts + 1))
	[ $attempts -lt 500 ] || exit
	sleep 0.02
done
echo "$DBUS_SESSION_BUS_ADDRESS" ${pid#*uint32}
exec cat`

// Required is the environment variable that makes Start fail, instead of skip the test, if the
// programs are not installed.
const Required = "TEST_KEYRING"

// Start starts a keyring that is unlocked. It ends with the test.
func Start(t testing.TB) *Keyring {
	t.Helper()
	for _, program := range []string{"dbus-run-session", "dbus-send", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv(Required) == "" {
			t.Skip("the test needs gnome-keyring and dbus: ", err)
		}
	}
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-run-session", "--", "sh", "-c", script, "sh", password)
	cmd.Env = []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + run, "PATH=" + os.Getenv("PATH")}
	var diagnostics strings.Builder
	cmd.Stderr = &diagnostics
	cmd.WaitDelay = 10 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // an error says only that the keyring ended by a signal
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	address, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		stdin.Close()
		t.Fatalf("the keyring did not start: %q: %s", line, diagnostics.String())
	}
	return &Keyring{PID: pid, Env: []string{"DBUS_SESSION_BUS_ADDRESS=" + address}}
}
