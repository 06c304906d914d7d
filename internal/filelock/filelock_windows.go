package filelock

import (
	"errors"
	"os"
	"syscall"
)

const sharingViolation = syscall.Errno(32)

// TryLock takes the lock of the file at path by opening it exclusively, and creates a missing file.
// It does not wait: ok is false if another process, or another call in this process, holds the
// lock. If ok is true, the caller calls unlock exactly once.
func TryLock(path string) (unlock func() error, ok bool, err error) { return tryLock(path, 0) }

// TryShare takes the lock of the file at path together with others that share it. ok is false if
// another process, or another call in this process, holds the lock alone. In everything else it is
// like TryLock.
func TryShare(path string) (unlock func() error, ok bool, err error) {
	return tryLock(path, syscall.FILE_SHARE_READ)
}

func tryLock(path string, share uint32) (unlock func() error, ok bool, err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ, share, nil, syscall.OPEN_ALWAYS,
		syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path).Close, true, nil
}
