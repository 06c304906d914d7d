//go:build unix

package faults

import (
	"os/exec"
	"syscall"
)

// ownSession has a process leave our session, and so our group.
func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
