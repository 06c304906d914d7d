package transport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// lookPath finds the file of a command. A bare name is looked up in the PATH
// that the child will have, not in ours: that is the one its configuration set.
// A path that is relative is so to the directory that the child runs in. Of a whole
// command line, which is none, the error says so.
func lookPath(name, dir string, env []string) (string, error) {
	path, err := findPath(name, dir, env)
	if first, _, line := strings.Cut(strings.TrimSpace(name), " "); err != nil && line {
		if _, e := findPath(first, dir, env); e == nil {
			return "", fmt.Errorf("%w: %q is a program, what follows it belongs in args", err, first)
		}
	}
	return path, err
}

func findPath(name, dir string, env []string) (string, error) {
	if strings.ContainsAny(name, `/\`) {
		if !filepath.IsAbs(name) {
			// exec.Cmd, too, takes it from there, so that it has to be absolute.
			abs, err := filepath.Abs(filepath.Join(dir, name))
			if err != nil {
				return "", err
			}
			name = abs
		}
		return checked(exec.LookPath(name))
	}
	for _, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return inPath(name, path)
		}
	}
	if _, ok := os.LookupEnv("PATH"); !ok && runtime.GOOS != "windows" {
		return inPath(name, standardPath)
	}
	return checked(exec.LookPath(name))
}

// standardPath is what stands for the PATH where there is none, as with execvp: some
// supervisors start us without.
const standardPath = "/usr/local/bin:/usr/bin:/bin"

func inPath(name, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(dir) {
			return found, nil
		}
	}
	return "", fmt.Errorf("command %q is in no directory of its PATH", name)
}

func checked(path string, err error) (string, error) {
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
