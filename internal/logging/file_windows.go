package logging

import (
	"errors"
	"os"
	"syscall"
)

const (
	appendOnly = syscall.FILE_APPEND_DATA | syscall.FILE_WRITE_ATTRIBUTES | syscall.SYNCHRONIZE
	shareAll   = syscall.FILE_SHARE_READ | syscall.FILE_SHARE_WRITE | syscall.FILE_SHARE_DELETE

	sharingViolation = syscall.Errno(32)
)

// openAppend opens a file like os.OpenFile with O_APPEND. It also sets FILE_SHARE_DELETE, because
// otherwise the open file could not be renamed.
func openAppend(path string) (*os.File, error) {
	return create(path, appendOnly, shareAll)
}

// tryLock takes the lock by opening the file exclusively. It does not wait: ok is false if
// another process holds the lock.
func tryLock(path string) (unlock func() error, ok bool, err error) {
	f, err := create(path, syscall.GENERIC_READ, 0)
	if errors.Is(err, sharingViolation) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return f.Close, true, nil
}

func create(path string, access, share uint32) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := syscall.CreateFile(
		name, access, share, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
