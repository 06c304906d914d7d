package config

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mcpgateway/internal/config/internal/expand"
)

// source is a file that was found, and what it holds.
type source struct {
	path         string // "" = there is none
	data         []byte
	warnings     []string // who else can change it
	inWorkingDir bool     // it is gateway.yaml of the working directory, and nobody has named it
}

// digest tells one text, and who can change it, from another.
func (s source) digest() [sha256.Size]byte {
	return sha256.Sum256(append([]byte(strings.Join(s.warnings, "\n")+"\x00"), s.data...))
}

// findSource reads the first file there is. One that was asked for by name must be
// there.
func findSource(opts Options) (source, error) {
	if opts.Path != "" {
		path, _ := expand.Tilde(opts.Path, opts.Env) // a client that starts programs without a shell passes ~ on
		read := readNamedSource
		if opts.Local {
			read = readFound
		}
		src, err := read(path, "")
		src.inWorkingDir = opts.Local
		if err == nil {
			err = opts.approve(src)
		}
		return src, err
	}
	if path, _ := opts.Env("GATEWAY_CONFIG"); path != "" {
		expanded, _ := expand.Tilde(path, opts.Env)
		return readNamedSource(expanded, "GATEWAY_CONFIG")
	}
	var none source
	places := searchPaths(opts)
	if len(places) == 1 {
		none.warnings = []string{"HOME is not set, so no configuration was looked for in its .config/mcp-gateway: " +
			"set HOME or XDG_CONFIG_HOME, or name a file with --config"}
	}
	for i, path := range places {
		found, err := readFound(path, "")
		switch found.inWorkingDir = i == 0; {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return found, err
		case found.inWorkingDir && isForeign(found.data):
			none.warnings = append(none.warnings, path+": the file is not used: it has none of the keys of a gateway "+
				"configuration at its top (backends, mcpServers, listen and others), and may be of another program; "+
				"name a file with --config to have an error instead")
			continue
		}
		found.warnings = append(none.warnings, found.warnings...)
		return found, opts.approve(found)
	}
	return none, nil
}

// SearchPaths returns the files that Load looks for, in order, if these options name none. It returns nil if
// they, or $GATEWAY_CONFIG, name a file.
func SearchPaths(opts Options) []string {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	if path, _ := opts.Env("GATEWAY_CONFIG"); opts.Path != "" || path != "" {
		return nil
	}
	return searchPaths(opts)
}

// searchPaths are the files that are looked for where none was named, in order. The first is that of the
// working directory.
func searchPaths(opts Options) []string {
	all := []string{filepath.Join(opts.Dir, "gateway.yaml")}
	if dir := baseDir(opts.Env, "XDG_CONFIG_HOME", ".config"); dir != "" {
		all = append(all, filepath.Join(dir, "mcp-gateway", "config.yaml"))
	}
	return all
}

// approve returns why a file of the working directory must not be used.
func (o Options) approve(src source) error {
	if !src.inWorkingDir || o.Approve == nil {
		return nil
	}
	return o.Approve(src.path, src.data)
}

// readNamedSource reads a file that the user has named, with key.
func readNamedSource(path, key string) (source, error) {
	data, err := readNamed(path, readTime)
	return newSource(path, key, data, err)
}

// readFound reads a file that nobody has named.
func readFound(path, key string) (source, error) {
	data, err := ReadFile(path)
	return newSource(path, key, data, err)
}

func newSource(path, key string, data []byte, err error) (source, error) {
	if err != nil {
		failed := FileError(path, err)
		failed.Key = key
		return source{}, failed
	}
	return source{path: path, data: data, warnings: writableWarning(path)}, nil
}

// FileError returns an error about a file that could not be read because of err.
func FileError(path string, err error) *Error {
	return &Error{File: path, Problem: systemMessage(err), cause: err}
}

// SystemMessage returns what the system said about a file, without its path and the name of the call.
func SystemMessage(err error) string { return systemMessage(err) }

// systemMessage is what the system said, less the path and the name of the call.
func systemMessage(err error) string {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "no such file"
	}
	return err.Error()
}

// baseDir is one of the XDG base directories: what the variable says, if it is
// absolute as the specification demands, or the fallback below the home
// directory; "" if nothing tells.
func baseDir(env func(string) (string, bool), variable string, fallback ...string) string {
	if dir, _ := env(variable); filepath.IsAbs(dir) {
		return dir
	}
	if dir := expand.HomeDir(env); dir != "" {
		return filepath.Join(dir, filepath.Join(fallback...))
	}
	return ""
}

// ExpandHome replaces a leading ~ by the user's home directory, as a shell does, if there is one.
func ExpandHome(path string) string {
	expanded, _ := expand.Tilde(path, os.LookupEnv)
	return expanded
}
