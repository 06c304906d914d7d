//go:build unix

package backends_test

import "syscall"

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }
