package atomicfile

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keepNewest keeps the newest regular files of a directory, at most keep, by modification time, and
// removes the other regular files. Leftover temporary files count as files. A file that cannot be
// removed stays.
func keepNewest(dir string, keep int) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= keep {
		return
	}
	modified := make(map[string]time.Time, len(entries))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			modified[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		return cmp.Or(
			modified[b.Name()].Compare(modified[a.Name()]), cmp.Compare(a.Name(), b.Name()))
	})
	for _, e := range entries[keep:] {
		if _, ok := modified[e.Name()]; ok {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
