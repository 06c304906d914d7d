package auditfile

import (
	"os"
	"syscall"
)

const (
	readAppend = syscall.GENERIC_READ | syscall.FILE_APPEND_DATA |
		syscall.FILE_WRITE_ATTRIBUTES | syscall.SYNCHRONIZE
	shareAll = syscall.FILE_SHARE_READ | syscall.FILE_SHARE_WRITE | syscall.FILE_SHARE_DELETE
)

// openAppend opens a file like os.OpenFile with O_APPEND and O_RDWR. It also sets
// FILE_SHARE_DELETE, because otherwise the open file could not be renamed.
func openAppend(path string) (*os.File, error) {
	return openShared(path, readAppend, syscall.OPEN_ALWAYS)
}

// openRead opens a file for reading. The open file can be renamed.
func openRead(path string) (*os.File, error) {
	return openShared(path, syscall.GENERIC_READ, syscall.OPEN_EXISTING)
}

func openShared(path string, access, create uint32) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := syscall.CreateFile(name, access, shareAll, nil, create,
		syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
