package catalogcache

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mcpgateway/internal/lazy"
)

// Limits of the state directory, for all gateways that use it.
const (
	// the least recently used files beyond this number are removed
	maxFiles = 500
	expiry   = 90 * 24 * time.Hour // age at which an unused file is removed
	// interval at which the modification time of a file in use is updated
	touchInterval  = 24 * time.Hour
	tempFileExpiry = time.Hour // age at which a temporary file counts as abandoned
)

// Names of the cache files and their temporary files; see Path and Cache.Save.
var (
	fileName     = lazy.Regexp(`-[0-9a-f]{12}\.json$`)
	tempFileName = lazy.Regexp(`-[0-9a-f]{12}\.[0-9]+\.tmp$`)
)

// prune removes cache files that are too old, or too many, and abandoned temporary files. It is
// called after a file was written. Several gateways may prune a directory concurrently; a failure
// to remove a file is ignored.
func prune(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var kept []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		age := now.Sub(info.ModTime())
		switch {
		case tempFileName().MatchString(e.Name()):
			if age > tempFileExpiry {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
		case fileName().MatchString(e.Name()) && age > expiry:
			removeFile(filepath.Join(dir, e.Name()))
		case fileName().MatchString(e.Name()):
			kept = append(kept, info)
		}
	}
	if len(kept) <= maxFiles {
		return
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range kept[:len(kept)-maxFiles] {
		removeFile(filepath.Join(dir, info.Name()))
	}
}

// removeFile removes a file that has the name of a cache file if its content also looks like
// one: the directory may contain other files. An empty file counts as a damaged cache file.
func removeFile(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	const begin = `{"version":`
	head := make([]byte, len(begin))
	n, err := io.ReadFull(f, head)
	f.Close()
	if string(head) == begin || n == 0 && err == io.EOF {
		_ = os.Remove(path)
	}
}

// touch records that a file is used, and removes the access of other users to it. It
// ignores anything but a regular file.
func touch(path string, info fs.FileInfo) {
	if !info.Mode().IsRegular() {
		return
	}
	if info.Mode().Perm()&0o077 != 0 {
		_ = os.Chmod(path, 0o600)
	}
	if now := time.Now(); now.Sub(info.ModTime()) > touchInterval {
		_ = os.Chtimes(path, now, now)
	}
}
