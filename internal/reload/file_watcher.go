package reload

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Several changes in quick succession, a burst, are reported as one change.
const (
	quietPeriod    = 250 * time.Millisecond // a burst ends after this time without a change
	maximumBurst   = 2 * time.Second        // a longer burst is reported before it ends
	replaceTimeout = 5 * time.Second        // how long a file may be missing while it is replaced
	pollInterval   = 5 * time.Second        // time between two comparisons of the files
)

// A fileWatcher reports that files may have changed. It watches the directories that contain the
// files and the links on the way to them, because editors replace the file and Kubernetes replaces
// a link. It also compares the files at intervals, because the system does not report changes on
// network file systems or changes of a parent of these directories, and because a watch can be lost
// while its directory is replaced.
type fileWatcher struct {
	log     *slog.Logger
	changed chan struct{}   // contains an element if the files may have changed
	files   chan []string   // the next files to watch
	paths   map[string]bool // links on the way to the files, the files, and missing elements
	dirs    map[string]bool // directories of paths
	last    []fs.FileInfo   // state of the files at the last comparison; nil = missing
	existed map[string]bool // files that existed at the last notification
}

func newFileWatcher(log *slog.Logger) *fileWatcher {
	return &fileWatcher{log: log, changed: make(chan struct{}, 1), files: make(chan []string, 1)}
}

// watch replaces the files to watch. The start of the watch is reported like a change, because the
// files may have changed before the start. Only one goroutine may call watch.
func (w *fileWatcher) watch(files []string) {
	select {
	case <-w.files: // replace files that run has not received yet
	default:
	}
	w.files <- files
}

// run watches until ctx is done. If no watcher can be created, it logs this and returns.
func (w *fileWatcher) run(ctx context.Context) {
	var files []string
	select {
	case files = <-w.files:
	case <-ctx.Done():
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.watchFailed(err)
		return
	}
	defer watcher.Close()
	w.addWatches(watcher, files)
	w.hasChanged(files)
	w.notify(files)
	var first time.Time // first change of the burst, zero = no burst
	burstEnd := time.NewTimer(0)
	burstEnd.Stop()
	defer burstEnd.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	touched := func() {
		w.addWatches(watcher, files)
		if first.IsZero() {
			first = time.Now()
		}
		burstEnd.Reset(min(quietPeriod, time.Until(first.Add(maximumBurst))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case files = <-w.files:
			w.addWatches(watcher, files)
			w.hasChanged(files)
			w.notify(files)
		case e := <-watcher.Events:
			if w.paths[e.Name] || w.dirs[e.Name] {
				touched()
			}
		case err := <-watcher.Errors:
			w.log.Debug("watch of the configuration failed", "err", err)
			touched() // a lost event may concern the watched files
		case <-poll.C:
			if w.hasChanged(files) {
				touched()
			}
		case <-burstEnd.C:
			if time.Since(first) < replaceTimeout && w.missing(files) {
				burstEnd.Reset(quietPeriod)
				continue
			}
			first = time.Time{}
			w.hasChanged(files) // so that the next comparison does not report this change again
			w.notify(files)
		}
	}
}

// notify reports that the files may have changed.
func (w *fileWatcher) notify(files []string) {
	w.existed = make(map[string]bool)
	for _, file := range files {
		if !isMissing(file) {
			w.existed[file] = true
		}
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// addWatches watches the directories of all paths in the symlinkChain of each file, and removes all
// other watches.
func (w *fileWatcher) addWatches(watcher *fsnotify.Watcher, files []string) {
	before := w.dirs
	w.paths, w.dirs = make(map[string]bool), make(map[string]bool)
	for _, file := range files {
		for _, path := range symlinkChain(file) {
			w.paths[path] = true
			w.dirs[filepath.Dir(path)] = true
		}
	}
	for dir := range before {
		if !w.dirs[dir] {
			_ = watcher.Remove(dir) // fails if the directory was removed
		}
	}
	for dir := range w.dirs {
		// A watched directory is added again, because another directory may have replaced it.
		if err := watcher.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !before[dir] {
			w.watchFailed(err)
		}
	}
}

func (w *fileWatcher) watchFailed(err error) {
	w.log.Warn("configuration not watched", "err", err, "text", "send SIGHUP after a change; "+
		"on Linux fs.inotify.max_user_watches and max_user_instances limit the number of watches")
}

// hasChanged reports whether one of the files was replaced, or changed its size or modification
// time, since the last call of hasChanged.
func (w *fileWatcher) hasChanged(files []string) (changed bool) {
	now := make([]fs.FileInfo, len(files))
	for i, file := range files {
		now[i], _ = os.Stat(file)
	}
	same := func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	}
	changed = !slices.EqualFunc(now, w.last, same)
	w.last = now
	return changed
}

// missing reports whether a file is missing that existed at the last notification, because another
// process may be replacing it. Files that did not exist at the last notification are ignored.
func (w *fileWatcher) missing(files []string) bool {
	for _, file := range files {
		if w.existed[file] && isMissing(file) {
			return true
		}
	}
	return false
}

func isMissing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// maxLinks is the number of links that are followed on the way to a file, as on Linux.
const maxLinks = 40

// symlinkChain returns the paths that determine the file that a path leads to: each link on the
// way, and the file at the end or the first missing element. The result does not contain the
// directories on the way.
func symlinkChain(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var all []string
	root := func(path string) string {
		return filepath.VolumeName(path) + string(filepath.Separator)
	}
	at, rest := root(path), pathElements(path)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return append(all, next)
		case info.Mode()&fs.ModeSymlink != 0:
			all = append(all, next)
			to, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return all
			}
			if filepath.IsAbs(to) {
				at = root(to)
			}
			rest = append(pathElements(to), rest...)
		case len(rest) == 0:
			return append(all, next)
		default:
			at = next
		}
	}
	return all
}

// pathElements splits a path into its names.
func pathElements(path string) []string {
	rest := path[len(filepath.VolumeName(path)):]
	return strings.FieldsFunc(rest, func(r rune) bool {
		return r < 0x80 && os.IsPathSeparator(uint8(r))
	})
}
