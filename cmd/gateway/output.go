package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"mcpgateway/internal/atomicfile"
)

// An output is the destination of a command: a file, or stdout if path is "".
type output struct {
	path  string
	force bool
}

// validate returns an error if path begins with an unknown home directory, is a link to a missing
// file, is not a regular file, or exists although force is false. It also returns an error if force
// is true and path is "". It is called at the start of the command, and again before the file is
// replaced.
func (o output) validate() error {
	if o.path == "" {
		if o.force {
			return usageErrorOf("gateway import", errors.New("--force needs --output"))
		}
		return nil
	}
	info, err := os.Stat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isUnexpanded(o.path):
		return usageError{
			fmt.Errorf("--output: the home directory in %s is not known", o.path),
			"give the full path, or ." + string(filepath.Separator) + o.path +
				" for a folder of that name",
		}
	case errors.Is(err, fs.ErrNotExist):
		// A path that now exists and is not a link is a file that another process has just created.
		if info, err := os.Lstat(o.path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link to a missing file", o.path)
		}
		return nil
	case err != nil:
		return o.writeError(err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", o.path)
	case !o.force:
		return hintedError{
			fmt.Errorf("%s exists already", o.path),
			"name another file, or overwrite it with --force",
		}
	}
	return nil
}

// isUnexpanded reports whether a path begins with ~ or ~USER that was not replaced by a home
// directory.
func isUnexpanded(path string) bool {
	end := strings.IndexFunc(path, func(r rune) bool {
		return r < utf8.RuneSelf && os.IsPathSeparator(uint8(r))
	})
	return strings.HasPrefix(path, "~") && (end > 0 || path == "~")
}

// writeTo writes text to the file, or to stdout if there is no file.
func (o output) writeTo(stdout io.Writer, text []byte) error {
	if o.path == "" {
		_, err := stdout.Write(text)
		return err
	}
	return o.writeError(o.write(text))
}

// writeError replaces the path in a system error, which may be the path of a temporary file, and
// adds a hint. It returns any other error unchanged.
func (o output) writeError(err error) error {
	var cause error
	if at, is := errors.AsType[*fs.PathError](err); is {
		cause = at.Err
	} else if link, is := errors.AsType[*os.LinkError](err); is {
		cause = link.Err
	}
	if cause != nil {
		return hintedError{
			fmt.Errorf("cannot write %s: %w", o.path, cause),
			"name another file, or make its folder writable",
		}
	}
	return err
}

// write replaces or creates the file. If path is a symbolic link, write replaces its target.
func (o output) write(text []byte) error {
	return atomicfile.Write(o.path, text, atomicfile.Options{
		Sync: true, FollowLink: true,
		Check: o.validate, // again, because reading the servers may have taken a while
	})
}
