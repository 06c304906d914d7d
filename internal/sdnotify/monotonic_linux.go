package sdnotify

import "golang.org/x/sys/unix"

// monotonicMicroseconds returns the time of CLOCK_MONOTONIC.
func monotonicMicroseconds() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return now.Nano() / 1000
}
