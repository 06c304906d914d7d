package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/joho/godotenv"

	"mcpgateway/internal/config/internal/expand"
)

const (
	maxEnvFile = 1 << 20 // bytes of an env_file
	// maxNumberedLines and maxNumberedText are the numbers of lines and bytes of an env_file up to
	// which an error names a line: the search takes time for each line and each byte.
	maxNumberedLines = 1000
	maxNumberedText  = 64 << 10
)

// envFile is the content of a file with variables, or the reason why it cannot be used.
type envFile struct {
	variables map[string]string
	err       error
}

// envFile reads a file with variables. It reads each file once.
func (r *sourceReader) envFile(written string) envFile {
	path, err := r.path(written)
	if err != nil {
		return envFile{err: err}
	}
	if f, ok := r.envFiles[path]; ok {
		return f
	}
	data, err := readNamed(path, readTime, maxEnvFile)
	digest := fileDigest(sha256.Sum256(data))
	if err != nil {
		digest, _ = digestOf(path)
	}
	r.addInput(path, digest)
	r.warnings = append(r.warnings, readableWarning(path)...)
	var f envFile
	if err != nil {
		f.err = errors.New(path + ": " + systemMessage(err))
	} else if f.variables, f.err = ParseEnvFile(data); f.err != nil {
		f.err = fmt.Errorf("%s%w", path, f.err)
	}
	r.envFiles[path] = f
	return f
}

// ParseEnvFile parses a file of env_file: lines NAME=value, as godotenv and docker compose read
// them. The error begins with the line, as in ":3: …", and does not contain text of the file.
func ParseEnvFile(data []byte) (map[string]string, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	all, ok := readVariables(data)
	if !ok {
		return nil, errors.New(wrongLine(data) + ": is not a line of the form NAME=value, " +
			"with a name of letters, digits and _, no digit first")
	}
	for name, value := range all {
		if strings.ContainsRune(value, 0) {
			return nil, errors.New(": the value of " + name + " contains a NUL character")
		}
	}
	return all, nil
}

// readVariables reads the variables in an env_file. ok is false if the file is not valid. The
// errors of the parser are not used, because they contain text of the file.
func readVariables(data []byte) (all map[string]string, ok bool) {
	all, err := godotenv.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	for name := range all {
		if name == "" || expand.NameLength(name) != len(name) {
			return nil, false
		}
	}
	return all, true
}

// wrongLine returns the line of the first error in a file that cannot be parsed, as ":3"; "" =
// unknown. It is the line after the longest beginning of the file that can be parsed.
func wrongLine(data []byte) string {
	lines := slices.Collect(bytes.Lines(data))
	if len(lines) > maxNumberedLines || len(data) > maxNumberedText {
		return ""
	}
	last, size := 0, 0
	for i, line := range lines {
		size += len(line)
		if _, ok := readVariables(data[:size]); ok {
			last = i + 1
		}
	}
	return fmt.Sprintf(":%d", last+1)
}

// withVariables returns an environment in which the variables are set that env does not set.
func withVariables(env func(string) (string, bool), variables map[string]string,
) func(string) (string, bool) {
	if len(variables) == 0 {
		return env
	}
	return func(name string) (string, bool) {
		if value, ok := env(name); ok {
			return value, true
		}
		value, ok := variables[name]
		return value, ok
	}
}

// addToProcess adds the variables of env_file to the environment of the backend's program. env
// takes precedence over inherit_env, and inherit_env over the variables of the file. A name in
// inherit_env that the gateway's environment does not set is looked up in the file, then in the
// file at the top level.
func (r *sourceReader) addToProcess(b *Backend) {
	if b.Command == "" || r.access == nil {
		return
	}
	add := make(map[string]string)
	if b.EnvFile != "" {
		for name, value := range r.envFile(b.EnvFile).variables {
			add[name] = value
		}
	}
	for _, name := range b.InheritEnv {
		_, inFile := add[name]
		value, inTop := r.topFile.variables[name]
		if _, set := r.env(name); set {
			delete(add, name)
		} else if !inFile && inTop {
			add[name] = value
		}
	}
	for name, value := range add {
		if _, written := b.Env[name]; written {
			continue
		}
		if b.Env == nil {
			b.Env = make(map[string]string)
		}
		b.Env[name] = value
	}
}

// EnvFileLine returns a line, or several lines, of a file of env_file that sets a variable to a
// value. It returns an error, which does not contain the value, for a name that is not valid and
// for a value that such a file cannot contain.
func EnvFileLine(name, value string) (string, error) {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "\n", `\n`, "\r", `\r`)
	forms := []string{
		value, "'" + value + "'", `"` + escaped.Replace(value) + `"`, `"` + value + `"`, value,
	}
	if strings.ContainsAny(value, " \t\r\n\"'$\\#`") { // other programs may read it differently
		forms = forms[1:]
	}
	for _, written := range forms {
		line := name + "=" + written + "\n"
		all, err := ParseEnvFile([]byte(line + "END=1\n"))
		if got, ok := all[name]; err == nil && ok && got == value && len(all) == 2 {
			return line, nil
		}
	}
	return "", fmt.Errorf("the value of %s cannot be written to a file with variables", name)
}
