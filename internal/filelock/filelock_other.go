//go:build !windows

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// TryLock takes the lock of the file at path, and creates a missing file (0600). It does not wait:
// ok is false if another process, or another call in this process, holds the lock. If ok is true,
// the caller calls unlock exactly once.
func TryLock(path string) (unlock func() error, ok bool, err error) {
	return tryLock(path, syscall.LOCK_EX)
}

// TryShare takes the lock of the file at path together with others that share it. ok is false if
// another process, or another call in this process, holds the lock alone. In everything else it is
// like TryLock.
func TryShare(path string) (unlock func() error, ok bool, err error) {
	return tryLock(path, syscall.LOCK_SH)
}

func tryLock(path string, how int) (unlock func() error, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return nil, false, err
	}
	return f.Close, true, nil // closing unlocks
}
