//go:build unix && !linux

package procgroup

import (
	"syscall"
	"time"
)

// dieWithParent does nothing, because this system has no such signal.
func dieWithParent(*syscall.SysProcAttr) {}

// descentLimit returns 0: without /proc there is no limit to read.
func descentLimit() uint64 { return 0 }

// hasOrphans and killOrphans find nothing, because orphans cannot be distinguished from other
// processes.
func hasOrphans(string) bool            { return false }
func killOrphans(string, time.Duration) {}
