// Package sdnotify reports the state of this process to systemd, with the protocol of sd_notify(3):
// datagrams to the socket in the variable NOTIFY_SOCKET.
package sdnotify

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// variables are the environment variables of the protocol.
var variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// A Notifier sends the state of this process. A nil *Notifier sends nothing.
type Notifier struct {
	address  string
	watchdog time.Duration // see Watchdog
}

// FromEnvironment returns the Notifier for the variables of this process, and removes the variables
// from the environment, so that no child process can report a state. It returns nil if systemd did
// not start this process, or expects no notification from it.
func FromEnvironment() *Notifier {
	address := os.Getenv("NOTIFY_SOCKET")
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range variables {
		_ = os.Unsetenv(name) // fails only for an invalid name
	}
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil
	}
	n := &Notifier{address: address}
	own := pid == "" || pid == strconv.Itoa(os.Getpid())
	const most = int64(24*time.Hour) / int64(time.Microsecond)
	if us, err := strconv.ParseInt(usec, 10, 64); err == nil && us > 0 && own {
		n.watchdog = time.Duration(min(us, most)) * time.Microsecond
	}
	return n
}

// Watchdog returns the time within which systemd expects the next [Alive]; 0 = it expects none.
func (n *Notifier) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog
}

// The assignments of sd_notify(3) that need no value.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Alive    = "WATCHDOG=1"
)

// Status returns the assignment of a text for people, which systemctl status shows. Each line break
// in the text becomes a space.
func Status(text string) string {
	return "STATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
}

// Reloading returns the assignments for the start of a reload, whose end is reported by [Ready].
func Reloading() string {
	return "RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(monotonicMicroseconds(), 10)
}

// sendTimeout limits the wait for room in the queue of the socket.
const sendTimeout = time.Second

// Send sends assignments in one datagram. It waits at most one second.
func (n *Notifier) Send(assignments ...string) error {
	if n == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return err
	}
	err = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		_, err = conn.Write([]byte(strings.Join(assignments, "\n")))
	}
	return errors.Join(err, conn.Close())
}
