// Package auditfile writes audit files: it appends lines to a file, rotates the file, removes and
// compresses former files, and links the lines to a chain (package auditchain). Several processes
// may append to the same path at once. It also opens former files for reading.
//
// The former files of path are path.1 (the newest), path.2 and so on, or path.1.gz or path.1.zst if
// they are compressed. If path.1 and path.1.gz exist, a compression was interrupted: both have the
// same contents, and readers and the next compression ignore path.1.gz.
//
// Locks between processes, which the kernel releases if a process dies, and which are never
// removed:
//   - path.lock is shared by processes that append, and held alone by a process that rotates the
//     file, removes former files, replaces a former file by its compressed form, or appends linked
//     lines. A process that does not get it within a second appends nevertheless, because a line is
//     more important.
//   - path.compress.lock is held by the process that compresses former files.
//
// The order of locks is path.compress.lock, File.mu, path.lock, problems.mu. File.mu is held during
// a write, so that lines do not mix.
package auditfile

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options are the limits of a File. The zero value rotates at 100 MiB, keeps 5 former files, and
// neither compresses nor links.
type Options struct {
	MaxSize  int64         // size in bytes at which a file is rotated; 0 = 100 MiB
	MaxAge   time.Duration // age of the first line at which a file is rotated; 0 = no limit
	Keep     Keep
	Compress Compression // of former files
	Chain    bool        // each line is linked to the line before it
}

// Keep limits the former files. The oldest files beyond a limit are removed.
type Keep struct {
	Files int           // number of files; 0 = 5, or MaxFiles if Age or Size is set
	Age   time.Duration // age of the last line of a file; 0 = no limit
	Size  int64         // bytes of all former files, as stored; 0 = no limit
}

// MaxFiles is the greatest number of former files.
const MaxFiles = 1000

func (o Options) withDefaults() Options {
	if o.MaxSize <= 0 {
		o.MaxSize = 100 << 20
	}
	if o.Keep.Files <= 0 {
		o.Keep.Files = 5
		if o.Keep.Age > 0 || o.Keep.Size > 0 {
			o.Keep.Files = MaxFiles
		}
	}
	o.Keep.Files = min(o.Keep.Files, MaxFiles)
	return o
}

// A File appends lines to a file and rotates it.
//
// Lines stay whole, because each Write is one write(2) to a file opened with O_APPEND, which the
// kernel executes in one step (on a local disk; NFS does not guarantee this). lumberjack was
// rejected, because it opens a new file without O_APPEND, so that two processes would overwrite
// each other's lines.
//
// Rotation does not lose lines:
//   - A process rotates only while it holds path.lock alone. It checks the size and the age again
//     after it has the lock, so that a file is not rotated twice.
//   - A rotation only renames files. The next Write of another process notices, by os.SameFile,
//     that path is another file, and opens path. This also works if logrotate or a person renames
//     the file.
//   - A rotation renames path to path.1, path.1 to path.2 and so on, up to the first number that
//     is not in use. It begins with the highest number. An interrupted rotation leaves an unused
//     number, which the next rotation uses. If all numbers up to Keep.Files are in use, the oldest
//     file is replaced.
type File struct {
	path     string
	problems problems
	wake     chan struct{} // has an element if Run has to look for work

	mu      sync.Mutex
	options Options
	open    openFile
	chain   chainEnd
	lock    pathLock
	bytes   int64 // written
}

// OpenFile opens path for appending. It creates a missing file with mode 0600 and missing
// directories with mode 0700. Existing files and directories keep their mode. The first of several
// equal failures is logged to log. Run must be called, so that files are rotated by age, removed by
// age and compressed.
func OpenFile(path string, o Options, log *slog.Logger) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	file := &File{
		path: path, options: o.withDefaults(), open: openFile{File: f},
		lock: pathLock{path: path + ".lock", isDevice: !info.Mode().IsRegular()},
		wake: make(chan struct{}, 1), problems: problems{log: log, path: path},
	}
	if unlock, ok, _ := file.lock.try(true, 0); ok {
		file.open.torn = file.open.endsWithinLine()
		unlock()
	}
	return file, nil
}

// Write appends p, one or more whole lines. A full file that cannot be rotated continues to grow,
// because a line is more important than the limit. If path was removed and cannot be created again,
// Write writes to the removed file and returns an error. n is the number of bytes of p that were
// written, with linked lines the number of bytes in whole lines. Write may be called concurrently.
func (f *File) Write(p []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.File == nil {
		return 0, os.ErrClosed
	}
	alone, unlock := f.lockToWrite()
	problem := f.prepare(alone)
	if f.options.Chain {
		n, err = f.appendLinked(p)
	} else {
		n, err = f.open.append(p)
	}
	unlock()
	if n > 0 && f.open.oldest.IsZero() && f.options.MaxAge > 0 {
		f.wakeRun() // to read the time of the first line
	}
	f.bytes += int64(n)
	if err == nil && problem != nil && !exists(f.path) { // the file that was written was removed
		err = problem
	}
	f.problems.note(writing, err)
	return n, err
}

// appendLinked appends lines with links. It finds the end of the chain in the files, unless this
// File has written the last line.
func (f *File) appendLinked(p []byte) (int, error) {
	if !f.lock.isDevice {
		f.problems.note(linking, f.chain.find(f.path, &f.open))
	}
	lines := f.chain.seal(p)
	if n, err := f.open.append(lines); err != nil {
		f.chain.forget()
		return wholeLines(p, bytes.Count(lines[:n], []byte("\n"))), err
	}
	f.chain.keep(&f.open)
	return len(p), nil
}

// wholeLines returns the length of the first n lines of p.
func wholeLines(p []byte, n int) (length int) {
	for range n {
		length += bytes.IndexByte(p[length:], '\n') + 1
	}
	return length
}

// lockToWrite takes path.lock for a write: alone if the file is due for rotation or lines are
// linked. If the lock cannot be taken, alone is false and unlock does nothing.
func (f *File) lockToWrite() (alone bool, unlock func()) {
	wait := lockWait
	if f.options.Chain {
		wait = chainLockWait
	}
	alone = f.options.Chain || f.isPathDue()
	unlock, ok, err := f.lock.lock(alone, wait)
	f.problems.note(locking, err)
	if !ok {
		return false, func() {}
	}
	return alone, unlock
}

// Close closes the file. Later calls of Write return os.ErrClosed.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.File == nil {
		return os.ErrClosed
	}
	err := f.open.Close()
	f.open.File = nil
	return err
}

// Reopen opens path again, so that a file that logrotate or a person has renamed is released
// before the next Write.
func (f *File) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.File == nil {
		return os.ErrClosed
	}
	_, unlock := f.lockToWrite()
	defer unlock()
	err := f.reopen()
	f.problems.note(writing, err)
	return err
}

// Configure replaces the options. Open files stay open; a file that is too large or too old now is
// rotated by the next Write or by Run.
func (f *File) Configure(o Options) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.Chain != f.options.Chain {
		f.chain.forget()
	}
	f.options = o.withDefaults()
	f.wakeRun()
}

// wakeRun makes Run look for work.
func (f *File) wakeRun() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
