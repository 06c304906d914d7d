package logging

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// FileOptions bounds a File. The zero value rotates at 100 MiB and keeps 5 old files.
type FileOptions struct {
	Limit int64 // bytes from which a file is full; 0 = 100 MiB
	Keep  int   // old files kept, path.1 being the youngest; 0 = 5
}

// File appends lines to a file and rotates it; any number of processes may do so to the same path at once.
//
// Lines stay whole because each Write is one write(2) on a file opened with O_APPEND, which the kernel places at the end
// in one step (on a local disk: NFS does not promise it). lumberjack was rejected here: it opens a new file without
// O_APPEND, so that two processes write over one another's lines.
//
// Nothing is lost in rotation, because
//   - only who holds the lock on path.lock rotates, and only if path is full when seen under the lock, so a file that
//     another process has just rotated is not rotated again. The kernel frees the lock of a process that died. Nobody
//     waits for it: who does not get it goes on appending. path.lock is never removed; a removed lock would be two locks;
//   - rotation only renames. Whoever still has the renamed file open appends to it there, and sees at its next Write, by
//     os.SameFile, that path is another file now (moved by logrotate or by hand, for all it cares);
//   - names are shifted from the first gap downwards, so an interrupted rotation leaves a gap for the next one to use,
//     and only a file that is the oldest of Keep is ever replaced.
type File struct {
	path  string
	limit int64
	keep  int

	mu   sync.Mutex // held while writing: it is the order of the lines
	f    *os.File
	torn bool // the last line was cut short (disk full): end it before the next
}

// OpenFile opens path for appending, and creates it (mode 0600) and its directory (0700) where they are missing. What
// exists keeps its mode.
func OpenFile(path string, o FileOptions) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	file := &File{path: path, limit: o.Limit, keep: o.Keep, f: f}
	if file.limit <= 0 {
		file.limit = 100 << 20
	}
	if file.keep <= 0 {
		file.keep = 5
	}
	return file, nil
}

// Write appends p, one or more whole lines, before it returns. While a full file cannot be rotated it grows on: a line is
// worth more than the limit. Safe for concurrent use.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return 0, os.ErrClosed
	}
	trouble := f.ensureWritable()
	n, err := f.writeLocked(p)
	if err != nil || trouble != nil && !exists(f.path) { // then it went to a file that was removed
		return n, errors.Join(err, trouble)
	}
	return n, nil
}

// writeLocked is one write(2), which also ends the line that an earlier one has left torn.
func (f *File) writeLocked(p []byte) (int, error) {
	mend := 0
	if f.torn {
		mend = 1
		p = append([]byte{'\n'}, p...)
	}
	n, err := f.f.Write(p)
	if n > 0 {
		f.torn = p[n-1] != '\n'
	}
	return max(0, n-mend), err
}

// Close closes the file. Writes after it return os.ErrClosed.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return os.ErrClosed
	}
	err := f.f.Close()
	f.f = nil
	return err
}

// ensureWritable makes f.f the file to write to: the one at path, with room in it. If that fails, f.f stays what it was.
func (f *File) ensureWritable() error {
	at, err := os.Stat(f.path)
	if err == nil && at.Size() >= f.limit {
		if err := f.rotate(); err != nil {
			return err
		}
		at, err = os.Stat(f.path)
	}
	if err == nil {
		ours, err := f.f.Stat()
		if err != nil || os.SameFile(at, ours) {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	next, err := openAppend(f.path)
	if err != nil {
		return err
	}
	f.f.Close()
	f.f, f.torn = next, false
	return nil
}

// rotate moves a full file out of the way, unless another process does or has just done so.
func (f *File) rotate() error {
	unlock, ok, err := tryLock(f.path + ".lock")
	if err != nil || !ok {
		return err
	}
	defer unlock()
	at, err := os.Stat(f.path)
	if err != nil || at.Size() < f.limit {
		return nil
	}
	return f.renameBackups()
}

// renameBackups renames path to path.1 and, before it, path.1 to path.2 and so on up to the first name that is free.
func (f *File) renameBackups() error {
	gap := 1
	for gap < f.keep && exists(f.backupPath(gap)) {
		gap++
	}
	for ; gap > 0; gap-- {
		if err := os.Rename(f.backupPath(gap-1), f.backupPath(gap)); err != nil {
			return err
		}
	}
	return nil
}

// backupPath names the file rotated n times; 0 is the one being written.
func (f *File) backupPath(n int) string {
	if n == 0 {
		return f.path
	}
	return f.path + "." + strconv.Itoa(n)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
