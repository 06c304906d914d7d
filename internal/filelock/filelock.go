// Package filelock locks files between processes. The kernel releases the lock of a process that
// died. A lock file must never be removed, because two processes could then hold two different
// locks.
package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// interval is the time between two attempts of Lock.
const interval = 20 * time.Millisecond

// Lock takes the lock of the file at path, and creates the file (0600) and missing directories
// (0700). It waits at most wait while another process, or another call in this process, holds the
// lock. The caller calls unlock exactly once.
func Lock(path string, wait time.Duration) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for end := time.Now().Add(wait); ; time.Sleep(interval) {
		unlock, ok, err := TryLock(path)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return unlock, nil
		case !time.Now().Before(end):
			return nil, fmt.Errorf("%s is locked by another process, for more than %s", path, wait)
		}
	}
}
