package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// protect keeps other processes of this user, and so the backends, from reading this process's
// environment, memory and descriptors in /proc and from tracing it. Children are not affected: the
// kernel sets this anew at each exec. Whoever debugs the gateway needs a process that can be traced
// and leaves core files, so debugEnv switches it off. That it fails is no reason not to run.
func protect() {
	if os.Getenv(debugEnv) == "" {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
}
