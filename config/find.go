package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// source is a file that was found, and what it holds.
type source struct {
	path     string // "" = there is none
	data     []byte
	warnings []string // who else can change it
	local    bool     // it is gateway.yaml of the working directory, and nobody has named it
}

// find reads the first file there is. One that was asked for by name must be
// there.
func find(opts Options) (source, error) {
	if opts.Path != "" {
		path, _ := expandHome(opts.Path, opts.Env) // a client that starts programs without a shell passes ~ on
		src, err := read(path, "")
		src.local = opts.Local
		if err == nil {
			err = opts.approve(src)
		}
		return src, err
	}
	if path, _ := opts.Env("GATEWAY_CONFIG"); path != "" {
		expanded, _ := expandHome(path, opts.Env)
		return read(expanded, "GATEWAY_CONFIG")
	}
	places := []string{filepath.Join(opts.Dir, "gateway.yaml")}
	var none source
	if dir := baseDir(opts.Env, "XDG_CONFIG_HOME", ".config"); dir != "" {
		places = append(places, filepath.Join(dir, "mcp-gateway", "config.yaml"))
	} else {
		none.warnings = []string{"HOME is not set, so no configuration was looked for in its .config/mcp-gateway: " +
			"set HOME or XDG_CONFIG_HOME, or name a file with --config"}
	}
	for i, path := range places {
		found, err := read(path, "")
		if !errors.Is(err, fs.ErrNotExist) {
			found.local = i == 0
			if err == nil {
				err = opts.approve(found)
			}
			return found, err
		}
	}
	return none, nil
}

// approve returns why a file of the working directory must not be used.
func (o Options) approve(src source) error {
	if !src.local || o.Approve == nil {
		return nil
	}
	return o.Approve(src.path, src.data)
}

// read reads one file. key says who named it.
func read(path, key string) (source, error) {
	data, err := readFile(path)
	if err != nil {
		return source{}, &Error{File: path, Key: key, Problem: reason(err), cause: err}
	}
	return source{path: path, data: data, warnings: changeable(path)}, nil
}

// maxFile bounds a file, ours or another client's, in bytes.
const maxFile = 64 << 20

var errTooLong = errors.New("it is longer than 64 MiB")

// readFile is [os.ReadFile] with a bound, for what is no regular file may have no end.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLong
	}
	return data, err
}

// ReadFile reads a configuration file, up to the length that Load accepts.
func ReadFile(path string) ([]byte, error) { return readFile(path) }

// reason is what the system said, less the path and the name of the call.
func reason(err error) string {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "no such file"
	}
	return err.Error()
}

// home is the user's home directory; "" if nothing tells.
func home(env func(string) (string, bool)) string {
	if dir, _ := env("HOME"); dir != "" {
		return dir
	}
	if runtime.GOOS == "windows" {
		dir, _ := env("USERPROFILE")
		return dir
	}
	return ""
}

// baseDir is one of the XDG base directories: what the variable says, if it is
// absolute as the specification demands, or the fallback below the home
// directory; "" if nothing tells.
func baseDir(env func(string) (string, bool), variable string, fallback ...string) string {
	if dir, _ := env(variable); filepath.IsAbs(dir) {
		return dir
	}
	if dir := home(env); dir != "" {
		return filepath.Join(dir, filepath.Join(fallback...))
	}
	return ""
}

// expandHome replaces a leading ~ by the home directory. ok is false if there
// is a ~ and no home.
func expandHome(path string, env func(string) (string, bool)) (expanded string, ok bool) {
	rest, tilde := strings.CutPrefix(path, "~")
	if !tilde || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, true
	}
	dir := home(env)
	if dir == "" {
		return path, false
	}
	return filepath.Join(dir, rest), true
}
