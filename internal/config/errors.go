package config

import (
	"fmt"
	"iter"
	"strings"

	"mcpgateway/internal/config/internal/expand"
)

// UnsetHint is the Hint of each Error about a variable that is not set.
const UnsetHint = expand.UnsetHint

// Error is one thing that is wrong with a configuration. It never holds the
// value of a secret.
type Error struct {
	File    string // as the user named it; "" = not in a file
	Line    int    // from 1; 0 = the file as a whole
	Backend string // whose name is known; "" = of none
	Key     string // within Backend: command, env.TOKEN; else backends[1].name, log.level, GATEWAY_LOG_LEVEL, --log-level; "" = no key
	Problem string // what is wrong
	Hint    string // what to try; often ""

	cause error // what the system said, if it was that
}

// Error is file:line: backend "name": key: problem, less what is not known. The hint is left
// to the caller.
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

// setBackend says that the error is in the backend that a path like backends[1] leads to.
func (e *Error) setBackend(name, at string) {
	rest, ok := strings.CutPrefix(e.Key, at)
	if ok && rest != ".name" && (rest == "" || rest[0] == '.') {
		e.Backend, e.Key = name, strings.TrimPrefix(rest, ".")
	}
}

// Unwrap returns what the system said of a file that could not be read.
func (e *Error) Unwrap() error { return e.cause }

// Errors is all that is wrong with a configuration: what Load returns if it
// could read the file. It is never empty.
type Errors []*Error

// Error has one line for each.
func (e Errors) Error() string { return strings.Join(e.lines(), "\n") }

func (e Errors) lines() []string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return lines
}

// Unwrap lets errors.Is and errors.As see each of them.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Hinted yields the line of each error with what to try about it, "" if there is
// nothing. A hint that several in a row share comes with the last of them.
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
