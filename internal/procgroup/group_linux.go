package procgroup

import "syscall"

// dieWithParent has the kernel kill the child when this process dies. It is the
// second net below the holder of its group, which also catches grandchildren. The kernel goes
// by the thread that forked; the Go runtime keeps its threads.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
