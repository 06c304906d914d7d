//go:build unix

package transport

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A ioOp is one read or write of a pollable file, to which it belongs: one at a time.
type ioOp struct {
	b    []byte
	n    int
	err  error
	poll func(fd uintptr) (done bool)
}

// newIOOp returns a turn that moves bytes with move; with wait, it is not done until some were moved.
func newIOOp(move func(uintptr, []byte) (int, error), wait bool) *ioOp {
	t := new(ioOp)
	t.poll = func(fd uintptr) bool {
		for {
			t.n, t.err = move(fd, t.b)
			if t.err != syscall.EINTR {
				return !wait || t.err != syscall.EAGAIN
			}
		}
	}
	return t
}

// do has the file's poller take the turn.
func (t *ioOp) do(poll func(func(uintptr) bool) error, b []byte) (int, error) {
	t.b = b
	err := poll(t.poll)
	t.b = nil
	if err != nil {
		return 0, err
	}
	return max(t.n, 0), t.err
}

// tryWriter returns a function that writes to f what f takes without waiting, for one caller at a time.
// It returns nil if f is a file that may block, such as a terminal.
func tryWriter(f *os.File) func([]byte) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil || !nonblocking(conn) {
		return nil
	}
	t := newIOOp(writeNoWait(), false)
	return func(b []byte) (int, error) {
		n, err := t.do(conn.Write, b)
		if err == syscall.EAGAIN {
			return 0, nil
		}
		return n, wrapErrno("write", err)
	}
}

// FastReader returns what reads from f as f does, for one reader, and costs less. A file on a disk, whose mode may say that it
// does not block, cannot be waited for when it does.
func FastReader(f *os.File) io.Reader {
	info, err := f.Stat()
	if err != nil || !isPipeOrSocket(info) {
		return f
	}
	conn, err := f.SyscallConn()
	if err != nil || !nonblocking(conn) {
		return f
	}
	return &fastReader{conn, newIOOp(readNoWait(), true)}
}

// isPipeOrSocket reports whether it is a pipe or a socket.
func isPipeOrSocket(info os.FileInfo) bool { return info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 }

type fastReader struct {
	conn syscall.RawConn
	op   *ioOp
}

func (r *fastReader) Read(b []byte) (int, error) {
	n, err := r.op.do(r.conn.Read, b)
	if n == 0 && err == nil && len(b) > 0 {
		return 0, io.EOF
	}
	return n, wrapErrno("read", err)
}

func wrapErrno(call string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return os.NewSyscallError(call, errno)
	}
	return err
}

func nonblocking(conn syscall.RawConn) bool {
	on := false
	err := conn.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		on = err == nil && flags&unix.O_NONBLOCK != 0
	})
	return err == nil && on
}

// ownPollable returns a file of its own for the pipe or socket f, one whose reads
// and writes Close unblocks; restore undoes what was done to f. Any other
// file, and one that shares its pipe with stderr, is returned as it is: the
// non-blocking mode belongs to the open pipe, and whoever else writes to it
// would be surprised.
func ownPollable(f *os.File) (mine *os.File, restore func()) {
	same := func() {}
	info, err := f.Stat()
	if err != nil || !isPipeOrSocket(info) {
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
