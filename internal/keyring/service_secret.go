//go:build !darwin && !windows

package keyring

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// available returns an error if there is no session bus, on which the Secret Service is found. The
// library would otherwise start a bus with dbus-launch, which nobody ends.
func available() error {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" && address != "autolaunch:" {
		return nil
	}
	for _, name := range []string{"bus", "dbus-session"} { // the places that the library knows
		if _, err := os.Stat(fmt.Sprintf("/run/user/%d/%s", os.Getuid(), name)); err == nil {
			return nil
		}
	}
	return errors.New("there is no D-Bus session bus (DBUS_SESSION_BUS_ADDRESS is not set)")
}

// isLocked reports whether an error of the library means that the user was not asked for the
// password, or did not enter it.
func isLocked(err error) bool {
	return strings.HasPrefix(err.Error(), "failed to unlock correct collection")
}
