//go:build unix && !linux

package transport

import "syscall"

// readNow and writeNow move what can be moved; the file has to be in its non-blocking mode.
func readNow(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func writeNow(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
