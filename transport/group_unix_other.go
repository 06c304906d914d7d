//go:build unix && !linux

package transport

import (
	"syscall"
	"time"
)

func dieWithParent(*syscall.SysProcAttr) {}

// stopStrays finds nothing: what has left its group cannot be told from what others started.
func stopStrays(string, time.Duration) {}
