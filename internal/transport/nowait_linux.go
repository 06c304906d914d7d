package transport

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readNoWait and writeNoWait return functions that transfer as many bytes as possible without
// blocking, or fail with EAGAIN if no byte can be transferred. The functions must not be called
// concurrently.
//
// Each call passes RWF_NOWAIT to the kernel, if the kernel supports it; see noWait. Other processes
// can change the mode of the open pipe, but not this flag. With the flag, the call never blocks,
// and the runtime need not be notified of a blocking call, which would be half of the cost of a
// call. See docs/decisions/027-nonblocking-pipe-io.md.
func readNoWait() func(uintptr, []byte) (int, error) {
	return noWait(unix.SYS_PREADV2, syscall.Read)
}

func writeNoWait() func(uintptr, []byte) (int, error) {
	return noWait(unix.SYS_PWRITEV2, syscall.Write)
}

// noWait returns a function that makes the system call with the number trap and RWF_NOWAIT, or
// calls the function plain if the kernel does not support RWF_NOWAIT.
func noWait(trap uintptr, plain func(int, []byte) (int, error)) func(uintptr, []byte) (int, error) {
	unsupported := false // by the kernel, or for this kind of file
	return func(fd uintptr, b []byte) (int, error) {
		if len(b) > 0 && !unsupported {
			const current = ^uintptr(0) // offset -1, in both halves: the current position
			v := unix.Iovec{Base: &b[0]}
			v.SetLen(len(b))
			n, _, err := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(&v)), 1,
				current, current, unix.RWF_NOWAIT)
			switch err {
			case 0:
				return int(n), nil
			case syscall.EOPNOTSUPP, // pipes, before Linux 6.4
				syscall.EINVAL, // before Linux 4.13
				syscall.ENOSYS, // before Linux 4.6
				syscall.EPERM:  // a container that blocks unknown system calls
				unsupported = true
			default:
				return 0, err
			}
		}
		return plain(int(fd), b)
	}
}
