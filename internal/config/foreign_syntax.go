package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
)

// A foreignSyntax describes text that another program would interpret and that the gateway uses
// literally.
type foreignSyntax struct {
	marker  string // substring of all such texts
	pattern func() *regexp.Regexp
	keys    string // keys of a backend that are checked: their first words
	warning string
}

const (
	allValueKeys = "command args env headers url cwd"
	commandForm  = "a command in $(…) or `…` is not run: write ${VARIABLE}, and set that variable to what the command prints"
)

var foreignSyntaxes = []foreignSyntax{
	{"op://", lazy.Regexp(`(?:^|[\s=:"'])op://`), allValueKeys,
		"op://… is used literally: write ${VARIABLE}, and start the gateway with op run"},
	{"$env:", lazy.Regexp(`\$env:[A-Za-z_]`), allValueKeys,
		"$env:NAME is used literally: write ${NAME}"},
	{"{env:", lazy.Regexp(`(?:^|[^$])\{env:[A-Za-z_]\w*\}`), allValueKeys,
		"{env:NAME} is used literally: write ${NAME}"},
	{"$",
		lazy.Regexp(
			`^\$[A-Za-z_]\w*$|(?:^|[\s=:/@?&,;"'])\$[A-Z_][A-Z0-9_]+(?:$|[\s:/@?&,;"'.\\-])`),
		allValueKeys,
		"$NAME is used literally: write ${NAME} for a variable, or $$NAME"},
	{"%", lazy.Regexp(`(?:^|[\s=:/\\;"'])%[A-Za-z_][A-Za-z0-9_()]{2,}%`),
		"command args env headers cwd",
		"%NAME% is used literally: write ${NAME}"},
	{"$(", lazy.Regexp(`^(?:(?i:bearer|basic) +)?\$\(.+\)$`), "env headers url", commandForm},
	{"`", lazy.Regexp("^(?:(?i:bearer|basic) +)?`.+`$"), "env headers url", commandForm},
	{"=~/", lazy.Regexp(`^--?[\w-]+=~/`), "args", "~/ is not expanded after =: write ${HOME}/"},
	{"~/", lazy.Regexp(`^~/`), "env", "~/ is not expanded in env: write ${HOME}/"},
}

var (
	// shellFlag matches the flag of a shell whose argument is a script.
	shellFlag = lazy.Regexp(`^(?:-[a-z]*c|/[cCkK]|-(?i:command))$`)
	// control matches the characters that escapes in YAML and JSON can produce from a backslash
	// and a letter.
	control = `[\x00-\x1f\x7f\x{85}\x{a0}\x{2028}\x{2029}]`
	// drivePath matches a Windows path that contains such a character.
	drivePath  = lazy.Regexp(`(?:^|[=;,"'])(?:[A-Za-z]:|\.{1,2})(?:\\[^\x00-\x1f]*)?` + control)
	hasControl = lazy.Regexp(control)
	// escapedReference matches a reference that is escaped with $$.
	escapedReference = lazy.Regexp(`\$\$(?:\{[^}]*\}|\w+|\([^)]*\))?`)
)

// warnLiteral records a warning if a value of a backend contains foreign syntax, or if a path
// probably had a backslash that was parsed as an escape. It skips disabled backends, and arguments
// that are scripts of a shell. Warnings do not contain the value, because it may be a secret.
func (r *fileParser) warnLiteral(n *yaml.Node, at location) {
	if r.disabled {
		return
	}
	key := at.path
	if r.backendPath != "" {
		key = strings.TrimPrefix(key, r.backendPath+".")
	}
	end := strings.IndexAny(key, ".[")
	first := key
	if end >= 0 {
		first = key[:end]
	}
	inArgs := r.backendPath != "" && first == "args"
	if inArgs && strings.HasSuffix(key, "[0]") {
		r.shellArgsPath = ""
	}
	isScript := inArgs && r.shellArgsPath == r.backendPath
	if inArgs && shellFlag().MatchString(n.Value) {
		r.shellArgsPath = r.backendPath
	}
	if isScript {
		return
	}
	warn := func(text string) {
		r.literalWarnings = append(r.literalWarnings,
			&Error{File: r.file, Line: at.line, Key: at.key, Problem: text})
	}
	if n.Style&yaml.DoubleQuotedStyle != 0 && r.isBrokenPath(first, key, n.Value) {
		warn(
			`a backslash in double quotes has become a control character: write the path in single quotes, or with / or \\`)
	}
	if r.backendPath == "" {
		return
	}
	text := n.Value
	if strings.Contains(text, "$$") {
		text = escapedReference().ReplaceAllString(text, "x")
	}
	for _, f := range foreignSyntaxes {
		if strings.Contains(text, f.marker) && strings.Contains(" "+f.keys+" ", " "+first+" ") &&
			f.pattern().MatchString(text) {
			warn(f.warning)
			return
		}
	}
}

// isBrokenPath reports whether a value looks like a Windows path whose backslashes were parsed as
// escapes.
func (r *fileParser) isBrokenPath(first, key, value string) bool {
	switch {
	case first == "command", first == "cwd",
		first == "tls" && !strings.HasSuffix(key, "server_name"), key == "state",
		key == "audit.file":
		return hasControl().MatchString(value)
	case r.backendPath != "" && (first == "args" || first == "env"):
		return drivePath().MatchString(value)
	}
	return false
}
