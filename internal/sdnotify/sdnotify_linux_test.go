package sdnotify

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen opens a socket of systemd, and returns its address and a function that reads one datagram.
func listen(t *testing.T, address string) (receive func() []string) {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func() []string {
		t.Helper()
		data := make([]byte, 4096)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := c.Read(data)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(data[:n]), "\n")
	}
}

// setVariables sets the variables of systemd for a test.
func setVariables(t *testing.T, socket, usec, pid string) {
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", usec)
	t.Setenv("WATCHDOG_PID", pid)
}

func TestAssignmentsReachTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	abstract := "@mcp-gateway-test-" + strconv.Itoa(os.Getpid())
	for _, address := range []string{path, abstract} {
		receive := listen(t, address)
		setVariables(t, address, "30000000", strconv.Itoa(os.Getpid()))
		n := FromEnvironment()
		if n.Watchdog() != 30*time.Second {
			t.Errorf("watchdog: %v", n.Watchdog())
		}
		if err := n.Send(Ready, Status("two\nlines")); err != nil {
			t.Fatal(err)
		}
		if got := receive(); !slices.Equal(got, []string{"READY=1", "STATUS=two lines"}) {
			t.Errorf("%s: received %q", address, got)
		}
		for _, text := range []string{Stopping, Alive} {
			if err := n.Send(text); err != nil {
				t.Fatal(err)
			}
			if got := receive(); !slices.Equal(got, []string{text}) {
				t.Errorf("received %q", got)
			}
		}
	}
}

func TestReloadHasTheTimeOfTheMonotonicClock(t *testing.T) {
	clock := func() int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano() / 1000
	}
	before := clock()
	kind, usec, _ := strings.Cut(Reloading(), "\nMONOTONIC_USEC=")
	at, err := strconv.ParseInt(usec, 10, 64)
	if kind != "RELOADING=1" || err != nil || at < before || at > clock() {
		t.Errorf("%s at %s (%v)", kind, usec, err)
	}
}

func TestVariablesDoNotReachChildProcesses(t *testing.T) {
	setVariables(t, "/run/some/socket", "1000", "")
	if FromEnvironment() == nil {
		t.Fatal("no notifier")
	}
	out, err := exec.Command("env").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range variables {
		if strings.Contains(string(out), name+"=") {
			t.Errorf("a child process has %s", name)
		}
	}
}

func TestWithoutSystemd(t *testing.T) {
	for _, socket := range []string{"", "relative", "vsock:2:1234"} {
		setVariables(t, socket, "1000", "")
		n := FromEnvironment()
		if n != nil || n.Watchdog() != 0 || n.Send(Ready) != nil {
			t.Errorf("%q: %+v", socket, n)
		}
	}
}

func TestWatchdogOfThisProcessOnly(t *testing.T) {
	for _, test := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"1000", "", time.Millisecond},
		{"1000", "1", 0},
		{"", "", 0},
		{"-5", "", 0},
		{"soon", "", 0},
		{"9223372036854775807", "", 24 * time.Hour},
	} {
		setVariables(t, "/run/some/socket", test.usec, test.pid)
		if got := FromEnvironment().Watchdog(); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestMissingSocketIsAnError(t *testing.T) {
	setVariables(t, filepath.Join(t.TempDir(), "none"), "", "")
	if err := FromEnvironment().Send(Ready); err == nil {
		t.Error("sent to a socket that does not exist")
	}
}
