//go:build !windows

package auditfile

import (
	"errors"
	"io/fs"
	"os"
)

// openAppend opens a file for appending, and, if this is permitted, for reading.
func openAppend(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	}
	return f, err
}

// openRead opens a file for reading.
func openRead(path string) (*os.File, error) { return os.Open(path) }
