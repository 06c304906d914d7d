package auditfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// isPathDue reports whether the file at path has to be rotated, as far as this is known without
// the lock.
func (f *File) isPathDue() bool {
	info, err := os.Stat(f.path)
	return err == nil && f.isDue(info.Size())
}

// isPathOld reports whether the file at path has the age at which it is rotated.
func (f *File) isPathOld() bool {
	info, err := os.Stat(f.path)
	return err == nil && f.isOld(info.Size())
}

// isDue reports whether a file of a size has to be rotated, if it is the open file.
func (f *File) isDue(size int64) bool {
	if size >= f.options.MaxSize {
		return true
	}
	return f.isOld(size)
}

func (f *File) isOld(size int64) bool {
	return f.options.MaxAge > 0 && size > 0 && f.untilOld() <= 0
}

// untilOld returns the time until the open file, which is not empty, has the age at which it is
// rotated.
func (f *File) untilOld() time.Duration {
	now := time.Now()
	if f.open.oldest.IsZero() {
		f.open.oldest = f.open.firstTime(now)
	}
	return f.open.oldest.Add(f.options.MaxAge).Sub(now)
}

// prepare opens the file at path, unless it is open. If alone is true, this process holds path.lock
// alone, and prepare rotates the file if it is due. If prepare fails, the open file stays open.
func (f *File) prepare(alone bool) error {
	size, err := f.reopenIfReplaced()
	if err != nil || !alone || !f.isDue(size) {
		return err
	}
	err = rotate(f.path, f.options.Keep)
	f.problems.note(rotating, err)
	f.wakeRun()
	_, openErr := f.reopenIfReplaced()
	return errors.Join(err, openErr)
}

// reopenIfReplaced opens the file at path, unless it is the open file, and returns its size.
func (f *File) reopenIfReplaced() (int64, error) {
	at, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err == nil {
		open, err := f.open.Stat()
		if err != nil || os.SameFile(at, open) {
			return at.Size(), err
		}
	}
	if err := f.reopen(); err != nil {
		return 0, err
	}
	at, err = f.open.Stat()
	if err != nil {
		return 0, err
	}
	return at.Size(), nil
}

// reopen opens or creates the file at path.
func (f *File) reopen() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	next, err := openAppend(f.path)
	if err != nil {
		return err
	}
	if f.options.Chain {
		f.chain.leave(f.path, &f.open)
	}
	f.open.Close()
	f.open = openFile{File: next}
	return nil
}
