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

// source is a configuration file and its content.
type source struct {
	path         string // "" = no file
	data         []byte
	warnings     []string // about other users who can change the file, and skipped files
	inWorkingDir bool     // gateway.yaml of the working directory, not named by the user
}

// digest returns a hash of the content and the warnings.
func (s source) digest() [sha256.Size]byte {
	return sha256.Sum256(append([]byte(strings.Join(s.warnings, "\n")+"\x00"), s.data...))
}

// findSource reads the first existing file among the possible configuration files. It skips a
// gateway.yaml of another program in the working directory. A file that the user named must exist.
// A file of the working directory that the user did not name must be approved. If there is no file,
// the source has no path, and the error is nil.
func findSource(opts Options) (source, error) {
	if opts.Path != "" {
		path, _ := expand.Tilde(opts.Path, opts.Env) // a client may not use a shell
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
		none.warnings = []string{"HOME is not set, so .config/mcp-gateway in the home directory was not searched for a configuration: " +
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
			none.warnings = append(none.warnings,
				path+": the file is not used: it has no top-level key of a gateway "+
					"configuration (backends, mcpServers, listen and others), and may belong to another program; "+
					"name a file with --config to get an error instead")
			continue
		}
		found.warnings = append(none.warnings, found.warnings...)
		return found, opts.approve(found)
	}
	return none, nil
}

// SearchPaths returns the files that Load searches for, in order. It returns nil if the options or
// $GATEWAY_CONFIG name a file.
func SearchPaths(opts Options) []string {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	if path, _ := opts.Env("GATEWAY_CONFIG"); opts.Path != "" || path != "" {
		return nil
	}
	return searchPaths(opts)
}

// searchPaths returns the files to search for, in order, if the user named no file. The first path
// is in the working directory.
func searchPaths(opts Options) []string {
	all := []string{filepath.Join(opts.Dir, "gateway.yaml")}
	if dir := baseDir(opts.Env, "XDG_CONFIG_HOME", ".config"); dir != "" {
		all = append(all, filepath.Join(dir, "mcp-gateway", "config.yaml"))
	}
	return all
}

// approve returns an error if a file of the working directory is not approved.
func (o Options) approve(src source) error {
	if !src.inWorkingDir || o.Approve == nil {
		return nil
	}
	return o.Approve(src.path, src.data)
}

// readNamedSource reads a file that the user named in the variable key; "" = with a flag.
func readNamedSource(path, key string) (source, error) {
	data, err := readNamed(path, readTime, maxFile)
	return newSource(path, key, data, err)
}

// readFound reads a file that the user did not name.
func readFound(path, key string) (source, error) {
	data, err := ReadFile(path)
	return newSource(path, key, data, err)
}

func newSource(path, key string, data []byte, err error) (source, error) {
	if err != nil {
		failed := FileError(path, err)
		failed.Key = key
		if errors.Is(err, fs.ErrNotExist) {
			failed.Hint = "check the path, or create a configuration with gateway import -o FILE"
		}
		return source{}, failed
	}
	return source{path: path, data: data, warnings: writableWarning(path)}, nil
}

// FileError returns an error for a file that could not be read because of err.
func FileError(path string, err error) *Error {
	return &Error{File: path, Problem: systemMessage(err), cause: err}
}

// SystemMessage returns the message of the operating system about a file, without path and
// operation.
func SystemMessage(err error) string { return systemMessage(err) }

// systemMessage returns the message of the operating system, without path and operation.
func systemMessage(err error) string {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "no such file"
	}
	return err.Error()
}

// baseDir returns an XDG base directory: the value of the variable if it is absolute, as the
// specification requires, otherwise the fallback below the home directory; "" if neither is known.
func baseDir(env func(string) (string, bool), variable string, fallback ...string) string {
	if dir, _ := env(variable); filepath.IsAbs(dir) {
		return dir
	}
	if dir := expand.HomeDir(env); dir != "" {
		return filepath.Join(dir, filepath.Join(fallback...))
	}
	return ""
}

// ExpandHome replaces a leading ~ by the user's home directory, like a shell. If the home directory
// is unknown, it returns path.
func ExpandHome(path string) string {
	return expand.Home(path)
}
