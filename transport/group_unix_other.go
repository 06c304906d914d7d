//go:build unix && !linux

package transport

import (
	"syscall"
	"time"
)

func dieWithParent(*syscall.SysProcAttr) {}

// hasStrays and stopStrays find nothing: what has left its group cannot be told from what others started.
func hasStrays(string) bool            { return false }
func stopStrays(string, time.Duration) {}
