package backends

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
	maxCacheFiles = 500                 // of more, the least recently used are removed
	cacheExpiry   = 90 * 24 * time.Hour // after which an unused file is removed
	// at which the use of a file is recorded as its modification time
	touchInterval  = 24 * time.Hour
	tempFileExpiry = time.Hour // after which a temporary file counts as abandoned
)

// The names of our files; see Backend.cachePath and writeFile.
var (
	cacheFileName = lazy.Regexp(`-[0-9a-f]{12}\.json$`)
	tempFileName  = lazy.Regexp(`-[0-9a-f]{12}\.[0-9]+\.tmp$`)
)

// prune removes files that are too old, or too many. It is called after a file was added.
// Gateways may do so concurrently; a failure to remove a file is ignored.
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
		case cacheFileName().MatchString(e.Name()) && age > cacheExpiry:
			removeCacheFile(filepath.Join(dir, e.Name()))
		case cacheFileName().MatchString(e.Name()):
			kept = append(kept, info)
		}
	}
	if len(kept) <= maxCacheFiles {
		return
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range kept[:len(kept)-maxCacheFiles] {
		removeCacheFile(filepath.Join(dir, info.Name()))
	}
}

// removeCacheFile removes a file if its content looks like a cache, too: the directory may hold
// other files. An empty file is a damaged cache.
func removeCacheFile(path string) {
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

// touchCacheFile records that a file is used, and removes the access of others.
func touchCacheFile(path string, info fs.FileInfo) {
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
