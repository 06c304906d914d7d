//go:build darwin || windows

package keyring

import "strings"

// available returns nil, because these systems have a keyring.
func available() error { return nil }

// isLocked reports whether an error of the library means that the user was not asked for the
// password, or did not enter it: these exit codes of the program security on macOS.
func isLocked(err error) bool {
	return strings.HasSuffix(err.Error(), "exit status 36") ||
		strings.HasSuffix(err.Error(), "exit status 51")
}
