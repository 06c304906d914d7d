//go:build unix

package faults

import (
	"os/exec"
	"syscall"
)

// setsid has a process leave our session, and so our group.
func setsid(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
