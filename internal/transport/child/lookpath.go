package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
)

// lookPath finds the file of a command. A bare name is looked up in the PATH
// that the child will have, not in ours: that is the one its configuration set.
// A path that is relative is so to the directory that the child runs in. Of a whole
// command line, which is none, the error says so.
func lookPath(name, dir string, env []string) (string, error) {
	path, err := resolve(name, dir, env)
	if first, _, line := strings.Cut(strings.TrimSpace(name), " "); err != nil && line {
		if _, e := resolve(first, dir, env); e == nil {
			why := err.Error()
			if missing, ok := errors.AsType[notInPathError](err); ok {
				why = missing.summary()
			}
			return "", fmt.Errorf("%s: %q is a program, what follows it belongs in args", why, first)
		}
	}
	return path, err
}

// LookPath is how [Start] finds the file of a command.
func LookPath(name, dir string, env []string) (string, error) { return lookPath(name, dir, env) }

func resolve(name, dir string, env []string) (string, error) {
	if strings.ContainsAny(name, `/\`) {
		if !filepath.IsAbs(name) {
			// exec.Cmd, too, takes it from there, so that it has to be absolute.
			abs, err := filepath.Abs(filepath.Join(dir, name))
			if err != nil {
				return "", err
			}
			name = abs
		}
		return explainLookError(exec.LookPath(name))
	}
	path, ok := searchPath(env)
	if !ok {
		path = defaultPath
	}
	return searchDirs(name, path, env)
}

// searchPath returns the PATH of a child with this environment, or ours if it has none.
func searchPath(env []string) (path string, ok bool) {
	if path, ok = lookupEnv(env, "PATH"); ok {
		return path, true
	}
	return os.LookupEnv("PATH")
}

// lookupEnv returns the value of a variable in an environment.
func lookupEnv(env []string, name string) (value string, ok bool) {
	for _, kv := range env {
		key, v, _ := strings.Cut(kv, "=")
		if key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name) {
			value, ok = v, true // the last one counts, as for os/exec
		}
	}
	return value, ok
}

// defaultPath is what stands for the PATH where there is none, as with execvp: some
// supervisors start us without.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

func searchDirs(name, path string, env []string) (string, error) {
	var found error // a file of that name that cannot be run
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file, err := exec.LookPath(filepath.Join(dir, name))
		if err == nil {
			return file, nil
		}
		if found == nil && errors.Is(err, fs.ErrPermission) {
			_, found = explainLookError("", err)
		}
	}
	if found != nil {
		return "", found
	}
	return "", notInPathError{name, displayPath(path, env)}
}

// notInPathError is the error for a command that was not found in the directories of a PATH.
type notInPathError struct{ name, path string }

func (e notInPathError) summary() string {
	return fmt.Sprintf("command %q is in no directory of its PATH (%s)", e.name, e.path)
}

func (e notInPathError) Error() string {
	return e.summary() + ": install it, write its full path, or set PATH in env of this backend"
}

// displayPathBytes bounds the PATH in an error.
const displayPathBytes = 400

// displayPath returns a PATH for an error: the home directory as ~, without control characters, and
// not longer than displayPathBytes and the number of directories that are left out.
func displayPath(path string, env []string) string {
	home, ok := lookupEnv(env, "HOME")
	if !ok {
		home, _ = os.UserHomeDir()
	}
	home = strings.TrimRight(home, string(filepath.Separator))
	var text strings.Builder
	dirs := filepath.SplitList(path)
	for i, dir := range dirs {
		if rest, under := strings.CutPrefix(dir, home); under && home != "" && (rest == "" || os.IsPathSeparator(rest[0])) {
			dir = "~" + rest
		}
		dir = strings.Map(printable, dir)
		if text.Len()+len(dir) > displayPathBytes {
			if i == 0 {
				return "too long to show"
			}
			fmt.Fprintf(&text, " and %d more", len(dirs)-i)
			break
		}
		if i > 0 {
			text.WriteByte(filepath.ListSeparator)
		}
		text.WriteString(dir)
	}
	if len(dirs) == 0 {
		return "it is empty"
	}
	return text.String()
}

func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

func explainLookError(path string, err error) (string, error) {
	var e *exec.Error
	if errors.As(err, &e) {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
			return "", fmt.Errorf("command %q does not exist", e.Name)
		case errors.Is(err, os.ErrPermission):
			return "", fmt.Errorf("command %q may not be executed", e.Name)
		}
	}
	return path, err
}
