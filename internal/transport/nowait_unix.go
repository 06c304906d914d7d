//go:build unix && !linux

package transport

import "syscall"

// readNoWait and writeNoWait return functions that transfer as many bytes as possible without
// blocking. The file must be in non-blocking mode.
func readNoWait() func(uintptr, []byte) (int, error)  { return plainCall(syscall.Read) }
func writeNoWait() func(uintptr, []byte) (int, error) { return plainCall(syscall.Write) }

func plainCall(plain func(int, []byte) (int, error)) func(uintptr, []byte) (int, error) {
	return func(fd uintptr, b []byte) (int, error) { return plain(int(fd), b) }
}
