package main

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

// How changes that come one after the other become one.
const (
	quietTime  = 250 * time.Millisecond // without a change, after which a burst is over
	burstTime  = 2 * time.Second        // after which it is taken to be over anyway
	absentTime = 5 * time.Second        // that a file may be gone while another is put in its place
	lookTime   = 5 * time.Second        // after which the files are looked at, whatever the system has told
)

// A lookout tells when files may have changed. It watches the directories in which
// they are: editors put a new file in the place of the old one, and Kubernetes exchanges
// a link on the way to it. And it looks at the files now and then: of what happens on network file
// systems, or to a directory further up, it is not told, and while a directory is exchanged its
// watch may get lost.
type lookout struct {
	log     *slog.Logger
	changed chan struct{}   // has one when there may be news
	files   chan []string   // that are to be watched from now on
	seen    map[string]bool // paths on the way to the files: links, the files, and what is missing
	dirs    map[string]bool // in which these are
	last    []fs.FileInfo   // of the files, as they were seen last; nil = there was none
	there   map[string]bool // files that existed when changes were told last
}

func newLookout(log *slog.Logger) *lookout {
	return &lookout{log: log, changed: make(chan struct{}, 1), files: make(chan []string, 1)}
}

// watch makes these the files. That they were watched from a certain moment on is told, as if they
// had changed: they may have before. Only one may call it, again and again.
func (l *lookout) watch(files []string) {
	select {
	case <-l.files: // which nobody has come to see
	default:
	}
	l.files <- files
}

// run watches until ctx is done.
func (l *lookout) run(ctx context.Context) {
	var files []string
	select {
	case files = <-l.files:
	case <-ctx.Done():
		return
	}
	eyes, err := fsnotify.NewWatcher()
	if err != nil {
		l.blind(err)
		return
	}
	defer eyes.Close()
	l.arm(eyes, files)
	l.looks(files)
	l.tell(files)
	var first time.Time // of a burst, zero if there is none
	over := time.NewTimer(0)
	over.Stop()
	defer over.Stop()
	again := time.NewTicker(lookTime)
	defer again.Stop()
	touched := func() {
		l.arm(eyes, files)
		if first.IsZero() {
			first = time.Now()
		}
		over.Reset(min(quietTime, time.Until(first.Add(burstTime))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case files = <-l.files:
			l.arm(eyes, files)
			l.looks(files)
			l.tell(files)
		case e := <-eyes.Events:
			if l.seen[e.Name] || l.dirs[e.Name] {
				touched()
			}
		case err := <-eyes.Errors:
			l.log.Debug("watching the configuration", "err", err)
			touched() // what was overlooked may be ours
		case <-again.C:
			if l.looks(files) {
				touched()
			}
		case <-over.C:
			if time.Since(first) < absentTime && l.missing(files) {
				over.Reset(quietTime)
				continue
			}
			first = time.Time{}
			l.looks(files) // what is told of now is news no more
			l.tell(files)
		}
	}
}

// tell tells that these files may have changed.
func (l *lookout) tell(files []string) {
	l.there = make(map[string]bool)
	for _, file := range files {
		if !isMissing(file) {
			l.there[file] = true
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// arm watches the directories on the way to the files, and no others any more.
func (l *lookout) arm(eyes *fsnotify.Watcher, files []string) {
	before := l.dirs
	l.seen, l.dirs = make(map[string]bool), make(map[string]bool)
	for _, file := range files {
		for _, path := range trail(file) {
			l.seen[path] = true
			l.dirs[filepath.Dir(path)] = true
		}
	}
	for dir := range before {
		if !l.dirs[dir] {
			_ = eyes.Remove(dir) // it may be gone
		}
	}
	for dir := range l.dirs {
		// Again even if it is watched: it may be another by now.
		if err := eyes.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !before[dir] {
			l.blind(err)
		}
	}
}

func (l *lookout) blind(err error) {
	l.log.Warn("changes of the configuration are not noticed, but SIGHUP has it loaded anew; "+
		"on Linux fs.inotify.max_user_watches and max_user_instances say how much can be watched", "err", err)
}

// looks reports whether one of the files is another, or has other contents as far as its size and
// time tell, than when it was asked before.
func (l *lookout) looks(files []string) (news bool) {
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
	news = !slices.EqualFunc(now, l.last, same)
	l.last = now
	return news
}

// missing reports whether a file is gone that existed when changes were told last: another may be put in its
// place. A file that did not exist then is not waited for.
func (l *lookout) missing(files []string) bool {
	for _, file := range files {
		if l.there[file] && isMissing(file) {
			return true
		}
	}
	return false
}

func isMissing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// maxLinks bounds the links on the way to a file, as the system does.
const maxLinks = 40

// trail returns what decides which file a path leads to: each link on the way, and the
// file at its end, or what is missing first. Directories that are moved are not in it.
func trail(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var all []string
	root := func(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }
	at, rest := root(path), split(path)
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
			rest = append(split(to), rest...)
		case len(rest) == 0:
			return append(all, next)
		default:
			at = next
		}
	}
	return all
}

// split returns the names in a path.
func split(path string) []string {
	return strings.FieldsFunc(path[len(filepath.VolumeName(path)):], func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}
