package reload

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"mcpgateway/internal/config"
)

// read reads the configuration file. Without a current file, it searches for one. Unless again is
// true, it uses the last valid configuration if the file contains the same text, so that commands
// in the file are not run without need. It returns the configuration, its differences from the
// configuration in force, and the certificate of the HTTP server.
func (r *Reloader) read(
	ctx context.Context, again bool,
) (*config.Loaded, config.Changes, *certificate, error) {
	var unchanged config.Changes
	if r.source != "" && isPiped(r.source) {
		return nil, unchanged, nil, &config.Error{
			File: r.source, Problem: "is a pipe or a device, which can be read only once",
			Hint: "use a regular file",
		}
	}
	next := r.lastRead
	if again || r.refused || r.source == "" || !r.Unchanged(next) {
		var err error
		if next, err = r.Load(ctx, r.source, r.local); err != nil {
			return nil, unchanged, nil, err
		}
	}
	if err := CheckNotEmptied(next, len(r.current.Backends)); err != nil {
		return nil, unchanged, nil, err
	}
	changes := config.Diff(r.current, next.Config)
	if r.Server == nil {
		return next, changes, nil, nil
	}
	after := r.current.Effective(next.Config, changes)
	if _, err := r.Target.Tokens(next, after); err != nil {
		return nil, unchanged, nil, err
	}
	pair, err := r.readCertificate(next, after.TLS)
	return next, changes, pair, err
}

// readCertificate reads the certificate. If the current certificate was read from a pipe, it is
// kept, because a second read of the pipe would block forever.
func (r *Reloader) readCertificate(next *config.Loaded, c config.TLS) (*certificate, error) {
	switch {
	case !isPiped(c.Cert) && !isPiped(c.Key):
		return LoadCertificate(next, c)
	case c == r.current.TLS:
		return r.Certificate.Load(), nil
	}
	e := next.ErrorAt("tls")
	e.Problem = "names a pipe or a device, which is read only at the start"
	e.Hint = "use regular files"
	return nil, e
}

// CheckNotEmptied returns an error if the file is empty and the running gateway has backends.
func CheckNotEmptied(next *config.Loaded, backends int) error {
	if !next.Blank() || backends == 0 {
		return nil
	}
	return &config.Error{
		File: next.Source, Problem: "is empty", Hint: "write backends: [] if there are to be none",
	}
}

// isMissingOrEmpty reports whether a file is empty or missing; false if path is "".
func isMissingOrEmpty(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return path != "" && errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular() && info.Size() == 0
}

// IsRegularOrMissing reports whether a file is regular or does not exist.
func IsRegularOrMissing(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isPiped(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}
