//go:build unix && !linux

package transport

import "syscall"

// reader and writer return what moves what can be moved; the file has to be in its non-blocking mode.
func reader() func(uintptr, []byte) (int, error) { return plainCall(syscall.Read) }
func writer() func(uintptr, []byte) (int, error) { return plainCall(syscall.Write) }

func plainCall(plain func(int, []byte) (int, error)) func(uintptr, []byte) (int, error) {
	return func(fd uintptr, b []byte) (int, error) { return plain(int(fd), b) }
}
