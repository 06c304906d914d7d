//go:build unix

package http1

import "syscall"

// peekable reports whether the socket has bytes or the end of the stream to read.
func peekable(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
	return err != syscall.EAGAIN
}
