package transport

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readNow and writeNow move what can be moved without waiting, else they fail with EAGAIN. That is asked of the
// kernel with each call (RWF_NOWAIT) and does not rest on the mode of the open pipe, which others who hold it may
// change: so the runtime need not be told that the call may block, which is half of what one at a time costs. See
// docs/decisions/027-nowait.md.
func readNow(fd uintptr, b []byte) (int, error) {
	return now(unix.SYS_PREADV2, fd, b, syscall.Read)
}

func writeNow(fd uintptr, b []byte) (int, error) {
	return now(unix.SYS_PWRITEV2, fd, b, syscall.Write)
}

// noNowait is set once the kernel has said that it does not know RWF_NOWAIT of pipes (before 6.4), or at all.
var noNowait atomic.Bool

func now(trap, fd uintptr, b []byte, plain func(int, []byte) (int, error)) (int, error) {
	if len(b) > 0 && !noNowait.Load() {
		const here = ^uintptr(0) // the file's own place, in both halves
		v := unix.Iovec{Base: &b[0]}
		v.SetLen(len(b))
		n, _, err := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(&v)), 1, here, here, unix.RWF_NOWAIT)
		switch err {
		case 0:
			return int(n), nil
		case syscall.EOPNOTSUPP, syscall.ENOSYS:
			noNowait.Store(true)
		default:
			return 0, err
		}
	}
	return plain(int(fd), b)
}
