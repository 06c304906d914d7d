//go:build unix

package transport

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// An ioOp performs reads, or writes, of one pollable file. Only one call of the method do may run
// at a time.
type ioOp struct {
	b    []byte
	n    int
	err  error
	poll func(fd uintptr) (done bool)
}

// newIOOp returns an ioOp that transfers bytes with the function transfer. If wait is true, the
// ioOp blocks until this function does not fail with EAGAIN.
func newIOOp(transfer func(uintptr, []byte) (int, error), wait bool) *ioOp {
	o := new(ioOp)
	o.poll = func(fd uintptr) bool {
		for {
			o.n, o.err = transfer(fd, o.b)
			if o.err != syscall.EINTR {
				return !wait || o.err != syscall.EAGAIN
			}
		}
	}
	return o
}

// do performs the operation on b. run is the method Read or Write of the RawConn of the file.
func (o *ioOp) do(run func(func(uintptr) bool) error, b []byte) (int, error) {
	o.b = b
	err := run(o.poll)
	o.b = nil
	if err != nil {
		return 0, err
	}
	return max(o.n, 0), o.err
}

// tryWriter returns a function that writes to f as many bytes as f accepts without blocking. The
// function must not be called concurrently. tryWriter returns nil if every write may block because
// f, such as a terminal, is not in non-blocking mode.
func tryWriter(f *os.File) func([]byte) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil || !nonblocking(conn) {
		return nil
	}
	op := newIOOp(writeNoWait(), false)
	return func(b []byte) (int, error) {
		n, err := op.do(conn.Write, b)
		if err == syscall.EAGAIN {
			return 0, nil
		}
		return n, wrapErrno("write", err)
	}
}

// FastReader returns a reader of f whose reads are cheaper than those of f itself. The reader must
// not be used concurrently. FastReader returns f itself if f is in blocking mode, or is not a pipe
// or socket: a regular file may be in non-blocking mode, but cannot be polled.
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

func isPipeOrSocket(info os.FileInfo) bool {
	return info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

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

// wrapErrno converts an errno to an *os.SyscallError with the name of the system call.
func wrapErrno(call string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return os.NewSyscallError(call, errno)
	}
	return err
}

// nonblocking reports whether the file is in non-blocking mode.
func nonblocking(conn syscall.RawConn) bool {
	isSet := false
	err := conn.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		isSet = err == nil && flags&unix.O_NONBLOCK != 0
	})
	return err == nil && isSet
}

// ownPollable returns a duplicate of the pipe or socket f, in non-blocking mode, so that Close
// unblocks the reads and writes of the duplicate. restore undoes the change of mode. ownPollable
// returns f itself if f is any other file, or shares its pipe with stderr: the mode belongs to the
// open pipe, and other processes that write to the pipe would get EAGAIN.
func ownPollable(f *os.File) (own *os.File, restore func()) {
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
