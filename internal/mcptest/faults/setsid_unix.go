//go:build unix

package faults

import (
	"os/exec"
	"syscall"
)

// setsid starts a process in a new session, and therefore in a new process group.
func setsid(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
