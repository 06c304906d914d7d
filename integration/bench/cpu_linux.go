package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns how much time the processors have spent on a process, as the kernel accounts it, to the
// nanosecond: clock_getcpuclockid(3) makes its clock's number in this way.
func cpuTime(pid int) time.Duration {
	const schedulerTime = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedulerTime), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
