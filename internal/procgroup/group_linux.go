package procgroup

import "syscall"

// dieWithParent makes the kernel kill the child when this process dies. It is a second safeguard
// besides the watchdog, which also kills grandchildren. The kernel watches the thread that forked,
// and the Go runtime keeps its threads.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
