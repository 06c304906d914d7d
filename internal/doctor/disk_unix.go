//go:build linux || darwin

package doctor

import "golang.org/x/sys/unix"

// canWrite reports whether this process may write to a file, or create files in a folder.
func canWrite(path string) bool { return unix.Access(path, unix.W_OK) == nil }

// freeSpace returns the bytes that this user can use on the disk of dir.
func freeSpace(dir string) (free uint64, known bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
