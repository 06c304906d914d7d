package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
)

// absolutePath returns the absolute path of a path relative to the working directory; "" stays "".
// It returns the path unchanged if the working directory is unknown.
func absolutePath(path string) string {
	if path == "" {
		return ""
	}
	if all, err := filepath.Abs(path); err == nil {
		return all
	}
	return path
}

// auditFileConflicts returns an error for each other file of the gateway that is the same file as
// audit.file, because records would be appended to it.
func auditFileConflicts(l *config.Loaded) (errs config.Errors) {
	c := l.Config
	audit := c.Audit.File
	if audit == "" || audit == config.PathNone {
		return nil
	}
	refuse := func(path, what string) {
		if path == "" || !isSameFile(audit, path) {
			return
		}
		e := l.ErrorAt("audit.file")
		e.Problem = "names " + what + ", " + absolutePath(path) +
			", and audit records would be appended to it"
		e.Hint = "set audit.file to a file of its own"
		errs = append(errs, e)
	}
	refuse(l.Source, "the configuration file itself")
	for _, file := range l.Files() {
		refuse(file, "a file with secrets that the configuration refers to")
	}
	refuse(pins.PathOf(l.Source), "the lock file of the configuration")
	refuse(c.TLS.Cert, "the same file as tls.cert")
	refuse(c.TLS.Key, "the same file as tls.key")
	if c.StateDir != "" && c.Auth.AutoToken() >= 0 {
		refuse(autoTokenPath(c), "the file with the token for auto in auth.tokens")
	}
	for i, b := range c.Backends {
		for _, p := range []struct{ key, path string }{
			{"tls.ca", b.TLS.CA}, {"tls.cert", b.TLS.Cert}, {"tls.key", b.TLS.Key},
		} {
			if p.path != "" {
				key := l.ErrorAt(fmt.Sprintf("backends[%d].%s", i, p.key)).Key
				refuse(p.path, "the same file as "+key+" of the backend "+b.Name)
			}
		}
	}
	return errs
}

// isSameFile reports whether two paths lead to the same file, which need not exist.
func isSameFile(a, b string) bool {
	if absolutePath(a) == absolutePath(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// missingPaths returns a warning for each TLS file and working directory of an enabled backend that
// does not exist or cannot be accessed, unless the backend is misconfigured. It also returns a
// warning if the key state names something that exists but is not a directory, or cannot be
// accessed. These are not errors, because the user may create or correct the files while the
// gateway runs.
func missingPaths(l *config.Loaded) (warnings []string) {
	if dir := l.Config.StateDir; l.Config.State != "" && dir != "" {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = errors.New("not a directory")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a missing directory is created
			warnings = append(warnings, l.PathError("state", dir, err, "").Error())
		}
	}
	for i, b := range l.Config.Backends {
		if !b.Enabled || b.Misconfigured != "" {
			continue
		}
		for _, p := range []struct{ key, path string }{
			{"tls.ca", b.TLS.CA}, {"tls.cert", b.TLS.Cert}, {"tls.key", b.TLS.Key}, {"cwd", b.Cwd},
		} {
			if p.path == "" {
				continue
			}
			if _, err := os.Stat(p.path); err != nil {
				key := fmt.Sprintf("backends[%d].%s", i, p.key)
				warnings = append(warnings, l.PathError(key, p.path, err, "").Error())
			}
		}
	}
	return warnings
}
