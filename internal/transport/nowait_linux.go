package transport

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readNoWait and writer return what moves what can be moved without waiting, for one caller at a time, and else fails with
// EAGAIN. That is asked of the kernel with each call (RWF_NOWAIT) and does not rest on the mode of the open pipe, which
// others who hold it may change: so the runtime need not be told that the call may block, which is half of what one at a
// time costs. See docs/decisions/027-nonblocking-pipe-io.md.
func readNoWait() func(uintptr, []byte) (int, error) { return noWait(unix.SYS_PREADV2, syscall.Read) }
func writeNoWait() func(uintptr, []byte) (int, error) {
	return noWait(unix.SYS_PWRITEV2, syscall.Write)
}

func noWait(trap uintptr, plain func(int, []byte) (int, error)) func(uintptr, []byte) (int, error) {
	unknown := false // the kernel has said that it does not do that, or not with such a file
	return func(fd uintptr, b []byte) (int, error) {
		if len(b) > 0 && !unknown {
			const here = ^uintptr(0) // the file's own place, in both halves
			v := unix.Iovec{Base: &b[0]}
			v.SetLen(len(b))
			n, _, err := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(&v)), 1, here, here, unix.RWF_NOWAIT)
			switch err {
			case 0:
				return int(n), nil
			case syscall.EOPNOTSUPP, // of pipes, before Linux 6.4
				syscall.EINVAL,                // before 4.13
				syscall.ENOSYS, syscall.EPERM: // before 4.6, and in a container that lets no call pass that it does not know
				unknown = true
			default:
				return 0, err
			}
		}
		return plain(int(fd), b)
	}
}
