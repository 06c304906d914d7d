//go:build unix

package transport

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryWriter returns a function that writes to f what f takes without waiting.
// It returns nil if f is a file that may block, such as a terminal.
func tryWriter(f *os.File) func([]byte) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil || !nonblocking(conn) {
		return nil
	}
	return func(b []byte) (n int, err error) {
		werr := conn.Write(func(fd uintptr) bool {
			for {
				n, err = syscall.Write(int(fd), b)
				if err != syscall.EINTR {
					return true // never wait for the poller
				}
			}
		})
		switch {
		case werr != nil:
			return 0, werr
		case err == syscall.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, os.NewSyscallError("write", err)
		}
		return n, nil
	}
}

func nonblocking(conn syscall.RawConn) bool {
	on := false
	err := conn.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		on = err == nil && flags&unix.O_NONBLOCK != 0
	})
	return err == nil && on
}

// pollable returns a file of its own for the pipe or socket f, one whose reads
// and writes Close unblocks; restore undoes what was done to f. Any other
// file, and one that shares its pipe with stderr, is returned as it is: the
// non-blocking mode belongs to the open pipe, and whoever else writes to it
// would be surprised.
func pollable(f *os.File) (mine *os.File, restore func()) {
	same := func() {}
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return f, same
	}
	if stderr, err := os.Stderr.Stat(); err == nil && f != os.Stderr && os.SameFile(info, stderr) {
		return f, same
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return f, same
	}
	syscall.CloseOnExec(fd)
	if syscall.SetNonblock(fd, true) != nil {
		syscall.Close(fd)
		return f, same
	}
	return os.NewFile(uintptr(fd), f.Name()), func() { _ = syscall.SetNonblock(int(f.Fd()), false) }
}
