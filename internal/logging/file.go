package logging

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"mcpgateway/internal/filelock"
)

// FileOptions are the limits of a File. The zero value rotates at 100 MiB and keeps 5 old files.
// Only tests set other values.
type FileOptions struct {
	Limit int64 // size in bytes at which a file is rotated; 0 = 100 MiB
	Keep  int   // number of old files, of which path.1 is the newest; 0 = 5
}

// A File appends lines to a file and rotates it. Several processes may append to the same path
// at once.
//
// Lines stay whole, because each Write is one write(2) to a file opened with O_APPEND, which the
// kernel executes in one step (on a local disk; NFS does not guarantee this). lumberjack was
// rejected, because it opens a new file without O_APPEND, so that two processes would overwrite
// each other's lines.
//
// Rotation does not lose lines:
//   - A process rotates only while it holds the lock on path.lock. It checks the size again after
//     it has the lock, so that a file is not rotated twice. The kernel releases the lock of a
//     process that died. A process that does not get the lock does not wait for the lock; it
//     continues to append. path.lock is never removed, because two processes could then hold two
//     different locks.
//   - A rotation only renames files. A line that another process is just writing goes to the
//     renamed file. The next Write of that process notices, by os.SameFile, that path is another
//     file, and opens path. This also works if logrotate or a person renames the file.
//   - A rotation renames path to path.1, path.1 to path.2 and so on, up to the first number that
//     is not in use. It begins with the highest number. An interrupted rotation leaves an unused
//     number, which the next rotation uses. If all numbers up to Keep are in use, the oldest file
//     is replaced.
type File struct {
	path  string
	limit int64
	keep  int

	mu   sync.Mutex // held during a write, so that lines do not mix
	f    *os.File
	torn bool // the last line is incomplete (disk full) and must be ended before the next line
}

// OpenFile opens path for appending. It creates a missing file with mode 0600 and missing
// directories with mode 0700. Existing files and directories keep their mode.
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

// Write appends p, one or more whole lines. A full file that cannot be rotated continues to grow,
// because a line is more important than the limit. If path was removed and cannot be created again,
// Write writes to the removed file and returns an error. Write may be called concurrently.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return 0, os.ErrClosed
	}
	problem := f.ensureWritable()
	n, err := f.writeLocked(p)
	if err != nil || problem != nil && !exists(f.path) { // the file that was written was removed
		return n, errors.Join(err, problem)
	}
	return n, nil
}

// writeLocked writes p with one write(2). It first ends a line that an earlier write has left
// incomplete.
func (f *File) writeLocked(p []byte) (int, error) {
	newline := 0
	if f.torn {
		newline = 1
		p = append([]byte{'\n'}, p...)
	}
	n, err := f.f.Write(p)
	if n > 0 {
		f.torn = p[n-1] != '\n'
	}
	return max(0, n-newline), err
}

// Close closes the file. Later calls of Write return os.ErrClosed.
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

// ensureWritable rotates a full file. It opens or creates the file at path, unless f.f is this
// file. If ensureWritable fails, f.f stays unchanged.
func (f *File) ensureWritable() error {
	at, err := os.Stat(f.path)
	if err == nil && at.Size() >= f.limit {
		if err := f.rotate(); err != nil {
			return err
		}
		at, err = os.Stat(f.path)
	}
	if err == nil {
		open, err := f.f.Stat()
		if err != nil || os.SameFile(at, open) {
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

// rotate renames a full file, unless another process is doing so or has just done so.
func (f *File) rotate() error {
	unlock, ok, err := filelock.TryLock(f.path + ".lock")
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

// renameBackups renames path to path.1, after it has renamed path.1 to path.2 and so on, up to the
// first free name.
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

// backupPath returns the path of the file that was rotated n times. 0 is the file being written.
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
