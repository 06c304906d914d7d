package config

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/secrets"
)

// Sources give Load access to values that are not in the file and not in the environment. Load
// calls the functions concurrently, each at most once with the same argument.
type Sources struct {
	// Keyring returns the secret with this name in the keyring of the operating system.
	Keyring func(name string) (string, error)
	// Command runs a program, the first of the words, and returns the first line of its output.
	// variables are added to its environment, unless they are set there. Load masks secrets in the
	// error and shortens it.
	Command func(words []string, variables map[string]string) (string, error)
}

const (
	maxSourceValue = 64 << 10 // bytes of a value
	maxSources     = 1000     // different references in a file
	maxCommands    = 16       // commands that run at the same time
	maxSourceError = 300      // characters of an error of a source
)

// A sourceReader reads env_file and the references that are not variables, for one call of Load. A
// pass over the file collects the references, and resolve reads all of them at once; the next pass
// uses their values.
type sourceReader struct {
	access *Sources
	strict bool   // see Options
	folder string // of the configuration file
	env    func(string) (string, bool)
	// envFilePath replaces env_file of the file; "" = it is not replaced.
	envFilePath string

	values   map[string]sourceValue // by expand.ValueSource.Key
	wanted   []expand.ValueSource   // not read yet
	envFiles map[string]envFile     // by absolute path
	topFile  envFile                // env_file at the top level
	inputs   []inputFile            // files that were read, in order
	warnings []string               // about files of env_file
}

// sourceValue is the value of a reference, or the reason why it has none.
type sourceValue struct {
	value  string
	err    error
	digest fileDigest // of the content of a file
}

// A fileDigest is the digest of the content of a file; zero = the file cannot be read.
type fileDigest [sha256.Size]byte

// inputFile is a file that a configuration refers to.
type inputFile struct {
	path   string // absolute
	digest fileDigest
}

func newSourceReader(path string, opts Options) *sourceReader {
	r := &sourceReader{
		access: opts.Sources, strict: opts.Strict, folder: filepath.Dir(path), env: opts.Env,
		values: map[string]sourceValue{}, envFiles: map[string]envFile{},
	}
	r.envFilePath, _ = opts.Env(variableName("env_file"))
	return r
}

// lookUp returns the value of a reference. If it is not read yet, lookUp returns an error, and
// resolve will read it.
func (r *sourceReader) lookUp(s expand.ValueSource) (string, *expand.ReferenceError) {
	found, known := r.values[s.Key()]
	same := func(other expand.ValueSource) bool { return other.Key() == s.Key() }
	if !known && r.access != nil && !slices.ContainsFunc(r.wanted, same) {
		r.wanted = append(r.wanted, s)
	}
	switch {
	case !known && r.access == nil && r.strict:
		return "1", nil
	case !known:
		return notRead(s)
	case found.err != nil:
		return "", &expand.ReferenceError{
			Problem: s.Shown() + ": " + found.err.Error(), Unset: s.Shown(),
		}
	}
	return found.value, nil
}

// notRead returns the error for a reference that is not needed.
func notRead(s expand.ValueSource) (string, *expand.ReferenceError) {
	return "", &expand.ReferenceError{Problem: s.Shown() + " is not read", Unset: s.Shown()}
}

// resolve reads the wanted references, all at the same time, except that at most maxCommands
// commands run. It returns false if there were none.
func (r *sourceReader) resolve() bool {
	if len(r.wanted) == 0 {
		return false
	}
	results := make([]sourceValue, len(r.wanted))
	var all sync.WaitGroup
	running := make(chan struct{}, maxCommands)
	for i, s := range r.wanted {
		if len(r.values)+i >= maxSources {
			results[i].err = fmt.Errorf("the file has more than %d different references", maxSources)
			continue
		}
		all.Go(func() {
			if s.Kind == expand.Command {
				running <- struct{}{}
				defer func() { <-running }()
			}
			results[i] = r.read(s)
		})
	}
	all.Wait()
	for i, s := range r.wanted {
		r.values[s.Key()] = results[i]
		if s.Kind == expand.File {
			path, _ := r.path(s.Words[0])
			r.addInput(path, results[i].digest)
		}
	}
	r.maskErrors()
	r.wanted = nil
	return true
}

// read reads the value of a reference.
func (r *sourceReader) read(s expand.ValueSource) (v sourceValue) {
	switch s.Kind {
	case expand.File:
		v.value, v.digest, v.err = r.readFile(s.Words[0])
	case expand.Keyring:
		v.value, v.err = r.access.Keyring(s.Words[0])
	default:
		v.value, v.err = r.access.Command(s.Words, r.topFile.variables)
	}
	switch {
	case v.err != nil:
		v.value = ""
	case len(v.value) > maxSourceValue:
		v.value, v.err = "", errors.New("the value is longer than 64 KiB")
	case strings.ContainsRune(v.value, 0):
		v.value, v.err = "", errors.New("the value contains a NUL character")
	}
	return v
}

// readFile returns the content of a file, without one newline at its end, and the digest of the
// whole content.
func (r *sourceReader) readFile(written string) (value string, digest fileDigest, err error) {
	path, err := r.path(written)
	if err != nil {
		return "", digest, err
	}
	data, err := readNamed(path, readTime, maxSourceValue+len("\r\n"))
	if err != nil {
		digest, _ = digestOf(path) // the file may be too long for a value
		return "", digest, errors.New(r.explain(written, path, err))
	}
	digest = sha256.Sum256(data)
	text, cut := strings.CutSuffix(string(data), "\n")
	if cut {
		text = strings.TrimSuffix(text, "\r")
	}
	return text, digest, nil
}

// explain describes why a file could not be read. It names the path if the file does not have an
// absolute one in the configuration.
func (r *sourceReader) explain(written, path string, err error) string {
	if written == path {
		return systemMessage(err)
	}
	return path + ": " + systemMessage(err)
}

// path returns the absolute path of a file: ~ is the home directory, and a relative path is
// relative to the folder of the configuration file.
func (r *sourceReader) path(written string) (string, error) {
	path, ok := expand.Tilde(written, r.env)
	if !ok {
		return "", errors.New("~ is not known: HOME is not set")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.folder, path)
	}
	return filepath.Clean(path), nil
}

// addInput records a file that was read.
func (r *sourceReader) addInput(path string, digest fileDigest) {
	same := func(f inputFile) bool { return f.path == path }
	if path == "" || slices.ContainsFunc(r.inputs, same) {
		return
	}
	r.inputs = append(r.inputs, inputFile{path, digest})
}

// isUnchanged reports whether the file would be read with the same result. A file that is not
// regular counts as unchanged, because a pipe can be read only once.
func (f inputFile) isUnchanged() bool {
	digest, isRegular := digestOf(f.path)
	return !isRegular || digest == f.digest
}

// digestOf returns the digest of a file. isRegular is false if the file is a pipe or the like.
func digestOf(path string) (digest fileDigest, isRegular bool) {
	data, err := ReadFile(path)
	if _, isPipe := errors.AsType[notRegularError](err); isPipe {
		return digest, false
	}
	if err == nil {
		digest = sha256.Sum256(data)
	}
	return digest, true
}

// maskErrors replaces the values that were read, and texts that look like secrets, in the errors of
// the sources, which contain output of programs. It then shortens the errors.
func (r *sourceReader) maskErrors() {
	var values []string
	add := func(value string) {
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); !isTrivial(line) {
				values = append(values, line)
			}
		}
	}
	for _, v := range r.values {
		add(v.value)
	}
	for _, f := range r.envFiles {
		for _, value := range f.variables {
			add(value)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for key, v := range r.values {
		if v.err == nil {
			continue
		}
		text := v.err.Error()
		for _, value := range values {
			text = strings.ReplaceAll(text, value, secrets.Redacted)
		}
		text = node.OneLine(strings.Join(strings.Fields(text), " "))
		v.err = errors.New(shortened(redact(text)))
		r.values[key] = v
	}
}

// redact replaces the parts of a text that look like secrets.
func redact(text string) string {
	var out strings.Builder
	end := 0
	for _, p := range secrets.Find("", text) {
		out.WriteString(text[end:p.From] + secrets.Redacted)
		end = p.To
	}
	return out.String() + text[end:]
}

// shortened cuts a text after maxSourceError characters.
func shortened(text string) string {
	if all := []rune(text); len(all) > maxSourceError {
		return string(all[:maxSourceError]) + "…"
	}
	return text
}
