package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
)

// A foreignForm is text that means something to another program, and stays as it is written here.
type foreignForm struct {
	sign string // a part of all such texts
	form func() *regexp.Regexp
	keys string // where it is looked for: the first words of keys of a backend
	says string
}

const (
	anyValue    = "command args env headers url cwd"
	commandForm = "a command in $(…) or `…` is not run: write ${VARIABLE}, and set that variable to what the command prints"
)

var foreignForms = []foreignForm{
	{"op://", lazy.Regexp(`(?:^|[\s=:"'])op://`), anyValue,
		"op://… is sent as it is written: write ${VARIABLE}, and start the gateway with op run"},
	{"$env:", lazy.Regexp(`\$env:[A-Za-z_]`), anyValue, "$env:NAME stays as it is written: write ${NAME}"},
	{"{env:", lazy.Regexp(`(?:^|[^$])\{env:[A-Za-z_]\w*\}`), anyValue, "{env:NAME} stays as it is written: write ${NAME}"},
	{"$", lazy.Regexp(`^\$[A-Za-z_]\w*$|(?:^|[\s=:/@?&,;"'])\$[A-Z_][A-Z0-9_]+(?:$|[\s:/@?&,;"'.\\-])`), anyValue,
		"$NAME stays as it is written: write ${NAME} if it means a variable, and else $$NAME"},
	{"%", lazy.Regexp(`(?:^|[\s=:/\\;"'])%[A-Za-z_][A-Za-z0-9_()]{2,}%`), "command args env headers cwd",
		"%NAME% stays as it is written: write ${NAME}"},
	{"$(", lazy.Regexp(`^(?:(?i:bearer|basic) +)?\$\(.+\)$`), "env headers url", commandForm},
	{"`", lazy.Regexp("^(?:(?i:bearer|basic) +)?`.+`$"), "env headers url", commandForm},
	{"=~/", lazy.Regexp(`^--?[\w-]+=~/`), "args", "~/ stays as it is written behind =: write ${HOME}/"},
	{"~/", lazy.Regexp(`^~/`), "env", "~/ stays as it is written in env: write ${HOME}/"},
}

var (
	// shellFlag is the flag of a shell before a text that the shell expands.
	shellFlag = lazy.Regexp(`^(?:-[a-z]*c|/[cCkK]|-(?i:command))$`)
	// control is what the escapes of YAML and JSON may make of a backslash and a letter.
	control = `[\x00-\x1f\x7f\x{85}\x{a0}\x{2028}\x{2029}]`
	// drivePath is a path of Windows with such a character in it.
	drivePath  = lazy.Regexp(`(?:^|[=;,"'])(?:[A-Za-z]:|\.{1,2})(?:\\[^\x00-\x1f]*)?` + control)
	hasControl = lazy.Regexp(control)
	// escaped is a reference that is meant to stay as it is.
	escaped = lazy.Regexp(`\$\$(?:\{[^}]*\}|\w+|\([^)]*\))?`)
)

// literal warns of what a value says that means something elsewhere, and of a backslash that has
// become something else. No warning shows the value: it may be a secret.
func (r *reader) literal(n *yaml.Node, at place) {
	if r.off {
		return
	}
	key := at.path
	if r.entry != "" {
		key = strings.TrimPrefix(key, r.entry+".")
	}
	end := strings.IndexAny(key, ".[")
	first := key
	if end >= 0 {
		first = key[:end]
	}
	inArgs := r.entry != "" && first == "args"
	if inArgs && strings.HasSuffix(key, "[0]") {
		r.script = ""
	}
	isScript := inArgs && r.script == r.entry
	if inArgs && shellFlag().MatchString(n.Value) {
		r.script = r.entry
	}
	if isScript {
		return
	}
	warn := func(text string) {
		r.literals = append(r.literals, &Error{File: r.file, Line: at.line, Key: at.key, Problem: text})
	}
	if n.Style&yaml.DoubleQuotedStyle != 0 && r.isTornPath(first, key, n.Value) {
		warn(`a backslash in double quotes has become a control character: write the path in single quotes, or with / or \\`)
	}
	if r.entry == "" {
		return
	}
	text := n.Value
	if strings.Contains(text, "$$") {
		text = escaped().ReplaceAllString(text, "x")
	}
	for _, f := range foreignForms {
		if strings.Contains(text, f.sign) && strings.Contains(" "+f.keys+" ", " "+first+" ") && f.form().MatchString(text) {
			warn(f.says)
			return
		}
	}
}

// isTornPath reports whether a value looks like a path of Windows whose backslashes were taken for
// escapes.
func (r *reader) isTornPath(first, key, value string) bool {
	switch {
	case first == "command", first == "cwd", first == "tls" && !strings.HasSuffix(key, "server_name"), key == "state", key == "audit.file":
		return hasControl().MatchString(value)
	case r.entry != "" && (first == "args" || first == "env"):
		return drivePath().MatchString(value)
	}
	return false
}
