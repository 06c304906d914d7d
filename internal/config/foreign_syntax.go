package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/lazy"
)

// A foreignSyntax describes text that another program would interpret and that the gateway uses
// literally.
type foreignSyntax struct {
	marker  string // substring of all such texts
	pattern func() *regexp.Regexp
	keys    string // keys of a backend that are checked: their first words
	warning string
	// inForeignEntry replaces warning in an entry of mcpServers, which has fewer kinds of
	// references; "" = it does not.
	inForeignEntry string
}

const (
	allValueKeys = "command args env headers url cwd"
	opForm       = "op://… is used literally: write ${VARIABLE}, and start the gateway with op run"
	ownOpForm    = "op://… is used literally: write ${command:op read op://…}"
	commandForm  = "a command in $(…) or `…` is not run: write ${VARIABLE}, and set that variable to what the command prints"
	ownCommand   = "a command in $(…) or `…` is not run: write ${command:PROGRAM ARGUMENTS}, which needs no shell"
)

var foreignSyntaxes = []foreignSyntax{
	{"op://", lazy.Regexp(`(?:^|[\s=:"'])op://`), allValueKeys, ownOpForm, opForm},
	{"$env:", lazy.Regexp(`\$env:[A-Za-z_]`), allValueKeys,
		"$env:NAME is used literally: write ${NAME}", ""},
	{"{env:", lazy.Regexp(`(?:^|[^$])\{env:[A-Za-z_]\w*\}`), allValueKeys,
		"{env:NAME} is used literally: write ${NAME}", ""},
	{"$",
		lazy.Regexp(
			`^\$[A-Za-z_]\w*$|(?:^|[\s=:/@?&,;"'])\$[A-Z_][A-Z0-9_]+(?:$|[\s:/@?&,;"'.\\-])`),
		allValueKeys,
		"$NAME is used literally: write ${NAME} for a variable, or $$NAME", ""},
	{"%", lazy.Regexp(`(?:^|[\s=:/\\;"'])%[A-Za-z_][A-Za-z0-9_()]{2,}%`),
		"command args env headers cwd",
		"%NAME% is used literally: write ${NAME}", ""},
	{"$(", lazy.Regexp(`^(?:(?i:bearer|basic) +)?\$\(.+\)$`), "env headers url",
		ownCommand, commandForm},
	{"`", lazy.Regexp("^(?:(?i:bearer|basic) +)?`.+`$"), "env headers url",
		ownCommand, commandForm},
	{"=~/", lazy.Regexp(`^--?[\w-]+=~/`), "args", "~/ is not expanded after =: write ${HOME}/", ""},
	{"~/", lazy.Regexp(`^~/`), "env", "~/ is not expanded in env: write ${HOME}/", ""},
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

// A literalCheck finds values that contain foreign syntax.
type literalCheck struct {
	file          string
	warnings      Errors
	shellArgsPath string // path of the backend whose next arguments are a shell script
}

// check records a warning if a value of a backend contains foreign syntax, or if a path probably
// had a backslash that was parsed as an escape. It skips disabled backends, and arguments that are
// scripts of a shell. Warnings do not contain the value, because it may be a secret.
func (c *literalCheck) check(n *yaml.Node, at location, b currentBackend) {
	if b.disabled {
		return
	}
	key := at.path
	if b.path != "" {
		key = strings.TrimPrefix(key, b.path+".")
	}
	first := key[:strings.IndexAny(key+".", ".[")]
	inArgs := b.path != "" && first == "args"
	if inArgs && strings.HasSuffix(key, "[0]") {
		c.shellArgsPath = ""
	}
	isScript := inArgs && c.shellArgsPath == b.path
	if inArgs && shellFlag().MatchString(n.Value) {
		c.shellArgsPath = b.path
	}
	if isScript {
		return
	}
	warn := func(text string) {
		c.warnings = append(c.warnings,
			&Error{File: c.file, Line: at.line, Key: at.key, Problem: text})
	}
	if n.Style&yaml.DoubleQuotedStyle != 0 && isBrokenPath(first, key, n.Value, b.path != "") {
		warn(
			`a backslash in double quotes has become a control character: write the path in single quotes, or with / or \\`)
	}
	if b.path == "" {
		return
	}
	text := n.Value
	if !b.inForeignEntry {
		text = expand.HideSources(text)
	}
	if strings.Contains(text, "$$") {
		text = escapedReference().ReplaceAllString(text, "x")
	}
	for _, f := range foreignSyntaxes {
		if strings.Contains(text, f.marker) && strings.Contains(" "+f.keys+" ", " "+first+" ") &&
			f.pattern().MatchString(text) {
			if b.inForeignEntry && f.inForeignEntry != "" {
				warn(f.inForeignEntry)
			} else {
				warn(f.warning)
			}
			return
		}
	}
}

// isBrokenPath reports whether a value looks like a Windows path whose backslashes were parsed as
// escapes.
func isBrokenPath(first, key, value string, inBackend bool) bool {
	switch {
	case first == "command", first == "cwd",
		first == "tls" && !strings.HasSuffix(key, "server_name"), key == "state",
		key == "audit.file":
		return hasControl().MatchString(value)
	case inBackend && (first == "args" || first == "env"):
		return drivePath().MatchString(value)
	}
	return false
}
