package proctest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// Terminal opens a pseudo-terminal until the test ends: tty is the end of the program, person the
// end of the user.
func Terminal(t testing.TB) (tty, person *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var unlock, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock,
		syscall.TIOCGPTN: &number} {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request,
			uintptr(unsafe.Pointer(value))); no != 0 {
			t.Fatal(no)
		}
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty, master
}
