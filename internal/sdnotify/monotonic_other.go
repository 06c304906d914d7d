//go:build !linux

package sdnotify

// monotonicMicroseconds returns 0, because there is no systemd.
func monotonicMicroseconds() int64 { return 0 }
