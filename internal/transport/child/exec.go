package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unicode"
)

// lookPath returns the file of a command. A bare name is looked up in the PATH of env, the
// environment of the child, or, if env has none, in the PATH of this process or defaultPath. A
// relative path is relative to the directory in which the child runs. If name is a whole command
// line, the error reports this mistake.
func lookPath(name, dir string, env []string) (string, error) {
	path, err := resolve(name, dir, env)
	if first, _, line := strings.Cut(strings.TrimSpace(name), " "); err != nil && line {
		if _, e := resolve(first, dir, env); e == nil {
			why := err.Error()
			if missing, ok := errors.AsType[notInPathError](err); ok {
				why = missing.summary()
			}
			return "", fmt.Errorf("%s: %q is a program, what follows it belongs in args",
				why, first)
		}
	}
	return path, err
}

// LookPath returns the file that [Start] would run for the command name, with dir as the directory
// and env as the environment of the child.
func LookPath(name, dir string, env []string) (string, error) { return lookPath(name, dir, env) }

// resolve returns the file of a command. It does not detect whole command lines.
func resolve(name, dir string, env []string) (string, error) {
	if strings.ContainsAny(name, `/\`) {
		if !filepath.IsAbs(name) {
			// The path must be absolute, because exec.Cmd resolves a relative path against Dir
			// again.
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

// searchPath returns the PATH in env, or the PATH of this process if env has none. ok is false if
// there is neither.
func searchPath(env []string) (path string, ok bool) {
	if path, ok = lookupEnv(env, "PATH"); ok {
		return path, true
	}
	return os.LookupEnv("PATH")
}

// lookupEnv returns the value of a variable in the environment env.
func lookupEnv(env []string, name string) (value string, ok bool) {
	for _, kv := range env {
		key, v, _ := strings.Cut(kv, "=")
		if key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name) {
			value, ok = v, true // the last value counts, as in os/exec
		}
	}
	return value, ok
}

// defaultPath replaces a missing PATH, as in execvp: some supervisors start the gateway without
// PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// searchDirs looks for an executable file in the directories of a PATH. It ignores relative
// directories.
func searchDirs(name, path string, env []string) (string, error) {
	var found error // error of a file that exists but cannot be executed
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

// A notInPathError reports a command that was not found in the directories of a PATH.
type notInPathError struct{ name, path string }

// summary returns the error text without the advice.
func (e notInPathError) summary() string {
	return fmt.Sprintf("command %q is in no directory of its PATH (%s)", e.name, e.path)
}

func (e notInPathError) Error() string {
	return e.summary() + ": install it, write its full path, or set PATH in env of this backend"
}

// displayPathBytes bounds the length of a PATH in an error.
const displayPathBytes = 400

// displayPath returns a PATH for an error message: with ~ for the home directory, without control
// characters, and cut at displayPathBytes, with the number of omitted directories.
func displayPath(path string, env []string) string {
	home, ok := lookupEnv(env, "HOME")
	if !ok {
		home, _ = os.UserHomeDir()
	}
	home = strings.TrimRight(home, string(filepath.Separator))
	var text strings.Builder
	dirs := filepath.SplitList(path)
	for i, dir := range dirs {
		rest, under := strings.CutPrefix(dir, home)
		if under && home != "" && (rest == "" || os.IsPathSeparator(rest[0])) {
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

// explainLookError replaces the error of exec.LookPath by an error in the terms of the
// configuration.
func explainLookError(path string, err error) (string, error) {
	var e *exec.Error
	if errors.As(err, &e) {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
			return "", fmt.Errorf("command %q does not exist", e.Name)
		case errors.Is(err, os.ErrPermission):
			return "", fmt.Errorf("command %q cannot be executed", e.Name)
		}
	}
	return path, err
}

// explainStartError replaces a misleading error of the system by the reason why a command could not
// be started.
func explainStartError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.EBADF): // the files of the new process exceed its limit
		return fmt.Errorf("%w (%w)", syscall.EMFILE, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf(
			"command %q is no program of this system, nor a script that begins with #! (%w)",
			path, syscall.ENOEXEC)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("command %q: its args and env are too long together (%w)",
			path, syscall.E2BIG)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, e := os.Stat(path); e != nil {
		return err
	}
	if line := firstLine(path); strings.HasPrefix(line, "#!") {
		return fmt.Errorf(
			"command %q is a script whose first line names a program that does not exist: %q",
			path, line)
	}
	return fmt.Errorf(
		"command %q needs a loader that does not exist: it is built for another system", path)
}

// firstLine returns at most 128 bytes of the first line of a file, including a carriage return at
// the end of the line; "" if the file cannot be read.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 128)).ReadString('\n')
	return strings.TrimSuffix(line, "\n")
}
