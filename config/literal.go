package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A foreignForm is text that means something to another program, and stays as it is written here.
type foreignForm struct {
	form *regexp.Regexp
	keys string // where it is looked for: the first words of keys of a backend
	says string
}

const anyValue = "command args env headers url cwd"

var foreignForms = []foreignForm{
	{regexp.MustCompile(`(?:^|[\s=:"'])op://`), anyValue,
		"op://… is sent as it is written: write ${VARIABLE}, and start the gateway with op run"},
	{regexp.MustCompile(`\$env:[A-Za-z_]`), anyValue, "$env:NAME stays as it is written: write ${NAME}"},
	{regexp.MustCompile(`(?:^|[^$])\{env:[A-Za-z_]\w*\}`), anyValue, "{env:NAME} stays as it is written: write ${NAME}"},
	{regexp.MustCompile(`^\$[A-Za-z_]\w*$|(?:^|[\s=:/@?&,;"'])\$[A-Z_][A-Z0-9_]+(?:$|[\s:/@?&,;"'.\\-])`), anyValue,
		"$NAME stays as it is written: write ${NAME} if it means a variable, and else $$NAME"},
	{regexp.MustCompile(`(?:^|[\s=:/\\;"'])%[A-Za-z_][A-Za-z0-9_()]{2,}%`), "command args env headers cwd",
		"%NAME% stays as it is written: write ${NAME}"},
	{regexp.MustCompile("^(?:(?i:bearer|basic) +)?(?:\\$\\(.+\\)|`.+`)$"), "env headers url",
		"a command in $(…) or `…` is not run: write ${VARIABLE}, and set that variable to what the command prints"},
	{regexp.MustCompile(`^--?[\w-]+=~/`), "args", "~/ stays as it is written behind =: write ${HOME}/"},
	{regexp.MustCompile(`^~/`), "env", "~/ stays as it is written in env: write ${HOME}/"},
}

var (
	// shellFlag is the flag of a shell before a text that the shell expands.
	shellFlag = regexp.MustCompile(`^(?:-[a-z]*c|/[cCkK]|-(?i:command))$`)
	// control is what the escapes of YAML and JSON may make of a backslash and a letter.
	control = `[\x00-\x1f\x7f\x{85}\x{a0}\x{2028}\x{2029}]`
	// drivePath is a path of Windows with such a character in it.
	drivePath  = regexp.MustCompile(`(?:^|[=;,"'])(?:[A-Za-z]:|\.{1,2})(?:\\[^\x00-\x1f]*)?` + control)
	hasControl = regexp.MustCompile(control)
	// escaped is a reference that is meant to stay as it is.
	escaped = regexp.MustCompile(`\$\$(?:\{[^}]*\}|\w+|\([^)]*\))?`)
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
	if inArgs && shellFlag.MatchString(n.Value) {
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
	text := escaped.ReplaceAllString(n.Value, "x")
	for _, f := range foreignForms {
		if strings.Contains(" "+f.keys+" ", " "+first+" ") && f.form.MatchString(text) {
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
		return hasControl.MatchString(value)
	case r.entry != "" && (first == "args" || first == "env"):
		return drivePath.MatchString(value)
	}
	return false
}
