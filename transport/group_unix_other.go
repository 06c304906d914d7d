//go:build unix && !linux

package transport

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
