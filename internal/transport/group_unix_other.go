//go:build unix && !linux

package transport

import (
	"syscall"
	"time"
)

func dieWithParent(*syscall.SysProcAttr) {}

// descent proves nothing where there is no /proc to read it from.
func descent() uint64 { return 0 }

// hasStrays and stopStrays find nothing: what has left its group cannot be told from what others started.
func hasStrays(string) bool            { return false }
func stopStrays(string, time.Duration) {}
