package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time of a process, as the kernel accounts it; 0 = unknown. The
// clock id is computed as in clock_getcpuclockid(3).
func cpuTime(pid int) time.Duration {
	const schedulerTime = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedulerTime), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
