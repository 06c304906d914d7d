//go:build unix

package httpserver

import "syscall"

// maxDescriptors returns the limit of open file descriptors of the process; 0 = unknown.
func maxDescriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), 1<<30))
}
