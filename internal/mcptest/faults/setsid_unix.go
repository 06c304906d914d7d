//go:build unix

package faults

import (
	"os/exec"
	"syscall"
)

// setsid makes a process leave the session, and so the process group.
func setsid(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
