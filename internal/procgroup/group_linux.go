package procgroup

import "syscall"

// dieWithParent makes the kernel kill the child when this process dies. It is a second safeguard
// besides the watchdog, which also kills grandchildren. The kernel sends the signal when the thread
// that forked the child ends; the Go runtime does not end its threads.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
