//go:build !linux && !darwin

package doctor

import "os"

// canWrite reports whether the permissions let the owner write.
func canWrite(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o200 != 0
}

// freeSpace is not known on this system.
func freeSpace(string) (free uint64, known bool) { return 0, false }
