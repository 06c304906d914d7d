//go:build unix && !linux

package procgroup

import (
	"syscall"
	"time"
)

func dieWithParent(*syscall.SysProcAttr) {}

// descentLimit proves nothing where there is no /proc to read it from.
func descentLimit() uint64 { return 0 }

// hasOrphans and killOrphans find nothing: what has left its group cannot be told from what others started.
func hasOrphans(string) bool            { return false }
func killOrphans(string, time.Duration) {}
