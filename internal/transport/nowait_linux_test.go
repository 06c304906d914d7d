package transport

import (
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A regular file may be in non-blocking mode, but its reads still block, and it cannot be polled. A
// reader that polls it would end at the first page that is not in memory.
func TestStdioReadsANonblockingFile(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/in")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n = 10000
	if _, err := io.WriteString(f, strings.Repeat(note+"\n", n)); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{f.Sync(), dropPages(f), syscall.SetNonblock(fd, true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	in := os.NewFile(uintptr(fd), "in")
	defer in.Close()
	_, outW := pipe(t)
	c := Stdio(in, outW, 1<<20)
	defer c.Close()
	for i := range n {
		if _, _, err := c.Read(); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if _, _, err := c.Read(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// dropPages removes the pages of a file from memory.
func dropPages(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

// If the kernel, or a filter of system calls, does not support RWF_NOWAIT, pipes are read and
// written with ordinary system calls.
func TestWithoutNowait(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.EINVAL, syscall.ENOSYS,
		syscall.EOPNOTSUPP} {
		t.Run(errno.Error(), func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				rejectCalls(t, errno, unix.SYS_PREADV2, unix.SYS_PWRITEV2)
				r, w := pipe(t)
				try := tryWriter(w)
				const text = "some text"
				if n, err := try([]byte(text)); n != len(text) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
				from, b := FastReader(r), make([]byte, 100)
				if n, err := from.Read(b); string(b[:n]) != text || err != nil {
					t.Errorf("read %q, %v", b[:n], err)
				}
				if n, err := try([]byte(strings.Repeat("x", 1<<20))); n == 0 || n == 1<<20 ||
					err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
				if n, err := try([]byte(text)); n != 0 || err != nil {
					t.Errorf("into a full pipe: wrote %d, %v", n, err)
				}
				w.Close()
				if _, err := io.Copy(io.Discard, from); err != nil {
					t.Error(err)
				}
			}()
			<-done
		})
	}
}

// rejectCalls makes system calls of this thread fail.
func rejectCalls(t *testing.T, errno syscall.Errno, calls ...uint32) {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // number
	for i, call := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
				Jt: uint8(len(calls) - i), K: call})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Error(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(filter)
}
