// Package atomicfile replaces files atomically: a reader gets the complete old or the complete new
// content. The content is written to a temporary file in the same directory, which then replaces
// the file. Only the owner can read and write the files, unless Options.Mode is set. Missing
// directories are created with mode 0700.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Options control Write.
type Options struct {
	// Sync flushes the content to the disk before the file is replaced. Without Sync the file may
	// be empty after a power failure.
	Sync bool
	// FollowLink replaces the file that a symbolic link leads to, instead of the link. Write then
	// fails if path is a dangling link, or if path exists and is not a regular file.
	FollowLink bool
	// Temp is the pattern of the temporary file's name, as in [os.CreateTemp]. "" = the name of the
	// file between a dot and a number.
	Temp string
	// Mode contains the permissions of a new file, whatever the umask is. A file that exists keeps
	// its permissions. 0 = 0600 for both.
	Mode fs.FileMode
	// Check is called before the file is replaced. If it fails, the file stays as it is. nil =
	// none.
	Check func() error
}

// Write replaces the content of the file at path, or creates the file and missing directories. If
// Write returns an error, the file is unchanged.
func Write(path string, data []byte, o Options) error {
	if o.FollowLink {
		var err error
		if path, err = target(path); err != nil {
			return err
		}
	}
	temp, err := writeTemp(path, o.Temp, data, o.Sync)
	if err != nil {
		return err
	}
	if o.Mode != 0 {
		err = os.Chmod(temp, modeOf(path, o.Mode))
	}
	if err == nil && o.Check != nil {
		err = o.Check()
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// Create creates the file at path and flushes it to the disk. temp has the meaning of Options.Temp.
// The error is [fs.ErrExist] if the file exists. If several processes call Create at the same time,
// only one creates the file. On a file system without hard links, however, Create replaces a file
// that another process creates during the call.
func Create(path string, data []byte, temp string) error {
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	temp, err := writeTemp(path, temp, data, true)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, path); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(temp, path)
}

// target returns the path of the regular file that path leads to, or of the file to create.
func target(path string) (string, error) {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil: // a missing file is created; other errors recur when it is written
	case info.Mode()&fs.ModeSymlink != 0:
		return "", fmt.Errorf("%s is a link to a missing file", path)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	return path, nil
}

// modeOf returns the permissions of the file at path, mode if there is no such file.
func modeOf(path string, mode fs.FileMode) fs.FileMode {
	if info, err := os.Stat(path); err == nil {
		return info.Mode().Perm()
	}
	return mode
}

// writeTemp writes a new temporary file next to path, and returns its path.
func writeTemp(path, pattern string, data []byte, sync bool) (string, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if pattern == "" {
		pattern = "." + filepath.Base(path) + ".*"
	}
	f, err := os.CreateTemp(dir, pattern) // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if sync {
		if e := f.Sync(); err == nil {
			err = e
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
