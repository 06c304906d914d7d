package procgroup

import (
	"errors"
	"path/filepath"
	"strings"
)

// isBatch reports whether Windows runs a file by cmd.exe: npx and other shims are such files.
func isBatch(path string) bool {
	ext := strings.ToLower(filepath.Ext(strings.TrimRight(path, " .")))
	return ext == ".bat" || ext == ".cmd"
}

var errBatchArgument = errors.New("an argument of a .cmd or .bat file cannot hold a line break")

// batchLine returns the command line that has cmd.exe run a batch file with these arguments, each of
// which the file gets as one word. What cmd.exe would take for a command, a redirection or a variable
// stands in quotes or is escaped, as Rust's standard library does it (CVE-2024-24576, "BatBadBut").
// The quoting of os/exec is for other programs and would let an argument run commands.
func batchLine(shell, script string, args []string) (string, error) {
	if strings.ContainsAny(script, "\"%\r\n\x00") {
		return "", errors.New(`the path of a .cmd or .bat file cannot hold " or %`)
	}
	var line strings.Builder
	// /d: no AutoRun. /v:off: ! expands nothing. The outer quotes are those that /c takes away.
	line.WriteString(`"` + shell + `" /d /e:on /v:off /c ""` + script + `"`)
	for _, arg := range args {
		if strings.ContainsAny(arg, "\r\n\x00") {
			return "", errBatchArgument
		}
		line.WriteString(` "`)
		slashes := 0
		for _, r := range arg {
			switch r {
			case '\\':
				slashes++
			case '"':
				line.WriteString(strings.Repeat(`\`, slashes) + `"`) // so that they count, and the quote is one of two
				slashes = 0
			case '%':
				line.WriteString(`%%cd:~,`) // with the % that follows it is a variable that is always empty, behind a %
				slashes = 0
			default:
				slashes = 0
			}
			line.WriteRune(r)
		}
		line.WriteString(strings.Repeat(`\`, slashes) + `"`)
	}
	line.WriteString(`"`)
	return line.String(), nil
}
