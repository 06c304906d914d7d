//go:build !windows

package auditlog

import (
	"os"
	"syscall"
)

// openShared opens a file for reading. The open file can be renamed and removed. It does not wait
// for the writer of a pipe.
func openShared(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
