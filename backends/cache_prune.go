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

// The bounds of the state directory, for all gateways that use it.
const (
	maxCacheFiles  = 500                 // files; of more, those go that were not used for longest
	cacheExpiry    = 90 * 24 * time.Hour // a file that was not used for so long goes, too
	touchInterval  = 24 * time.Hour      // that it is used is noted so often, as the time of its change
	tempFileExpiry = time.Hour           // after which a file that was being written will not be finished
)

// The names of files that are ours; see Backend.path and replace.
var (
	cacheFileName = lazy.Regexp(`-[0-9a-f]{12}\.json$`)
	tempFileName  = lazy.Regexp(`-[0-9a-f]{12}\.[0-9]+\.tmp$`)
)

// prune removes what is too old, or too much. It is called when a file was added, for
// nothing grows otherwise. Several gateways may do so at once; that something cannot be
// removed costs nothing.
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

// removeCacheFile removes a file if it looks like ours inside, too: the directory may be
// somebody's, and hold other things. An empty one is what is left of one.
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

// touchCacheFile notes that a file is used, and takes it from others who could read it.
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
