package expand

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// HomeDir returns the user's home directory; "" = unknown.
func HomeDir(env func(string) (string, bool)) string {
	if dir, _ := env("HOME"); dir != "" {
		return dir
	}
	if runtime.GOOS == "windows" {
		dir, _ := env("USERPROFILE")
		return dir
	}
	return ""
}

// Tilde replaces a leading ~ by the home directory. ok is false if the path has a ~ and the home
// directory is unknown.
func Tilde(path string, env func(string) (string, bool)) (expanded string, ok bool) {
	rest, tilde := strings.CutPrefix(path, "~")
	if !tilde || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, true
	}
	dir := HomeDir(env)
	if dir == "" {
		return path, false
	}
	return filepath.Join(dir, rest), true
}

// Home replaces a leading ~ by the home directory of this process's user. If the home directory is
// unknown, it returns path.
func Home(path string) string {
	expanded, _ := Tilde(path, os.LookupEnv)
	return expanded
}
