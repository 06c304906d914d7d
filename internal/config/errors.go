package config

import (
	"fmt"
	"iter"
	"strings"

	"mcpgateway/internal/config/internal/expand"
)

// UnsetHint is the Hint of each Error about a variable that is not set.
const UnsetHint = expand.UnsetHint

// Error is one problem with a configuration. It never contains the value of a secret.
type Error struct {
	File    string // file as the user named it; "" = not in a file
	Line    int    // line number from 1; 0 = the file as a whole
	Backend string // name of the backend, if known; "" = none
	// If Backend is set, Key is relative to the backend: command, env.TOKEN. Otherwise it is a full
	// key, a variable or a flag: backends[1].name, log.level, GATEWAY_LOG_LEVEL, --log-level. "" =
	// no key.
	Key     string
	Problem string
	Hint    string // possible solution; often ""

	cause error // error of the operating system, if any
}

// Error returns file:line: backend "name": key: problem. It omits unknown parts and the hint.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	case e.File != "":
		b.WriteString(e.File + ": ")
	}
	if e.Backend != "" {
		fmt.Fprintf(&b, "backend %q: ", e.Backend)
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	return b.String() + e.Problem
}

// setBackend sets Backend if the key is below the path at, such as backends[1].
func (e *Error) setBackend(name, at string) {
	rest, ok := strings.CutPrefix(e.Key, at)
	if ok && rest != ".name" && (rest == "" || rest[0] == '.') {
		e.Backend, e.Key = name, strings.TrimPrefix(rest, ".")
	}
}

// Unwrap returns the error of the operating system about a file that could not be read.
func (e *Error) Unwrap() error { return e.cause }

// Errors contains all problems with a configuration. Load returns Errors for a file that could be
// read. An Errors that is returned as an error is never empty.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string { return strings.Join(e.lines(), "\n") }

func (e Errors) lines() []string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return lines
}

// Unwrap returns the errors for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Hinted yields the line of each error and its hint, "" if the error has none. If consecutive
// errors have the same hint, it is yielded only with the last of these errors.
func (e Errors) Hinted() iter.Seq2[string, string] {
	return func(yield func(line, hint string) bool) {
		for i, one := range e {
			hint := one.Hint
			if i+1 < len(e) && e[i+1].Hint == hint {
				hint = ""
			}
			if !yield(one.Error(), hint) {
				return
			}
		}
	}
}
