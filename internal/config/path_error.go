package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// PathError returns an error about a path in the configuration. The error gets the argument hint if
// the path is absolute or exists; otherwise it gets a hint about relative paths.
func (l *Loaded) PathError(key, path string, err error, hint string) *Error {
	e := l.ErrorAt(key)
	if at, is := errors.AsType[*fs.PathError](err); is {
		err = at.Err
	}
	full := path
	if path != "" {
		if abs, err := filepath.Abs(path); err == nil {
			full = abs
		}
	}
	e.Problem, e.Hint = full+": "+err.Error(), hint
	if _, err := os.Stat(path); err != nil && !filepath.IsAbs(path) {
		e.Hint = "a relative path is relative to the folder in which the gateway is started: write an absolute one"
	}
	return e
}
