package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// protect prevents other processes of the same user, such as the backends, from reading the
// environment, memory and descriptors of this process in /proc, and from tracing it. It does not
// affect child processes, because the kernel resets the flag at each exec. If debugEnv is set,
// protect does nothing, because debugging needs tracing and core files. A failure is ignored.
func protect() {
	if os.Getenv(debugEnv) == "" {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
}
