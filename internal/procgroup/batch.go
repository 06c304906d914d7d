package procgroup

import (
	"errors"
	"path/filepath"
	"strings"
)

// isBatch reports whether Windows runs the file with cmd.exe, as in the case of npx and other
// shims.
func isBatch(path string) bool {
	ext := strings.ToLower(filepath.Ext(strings.TrimRight(path, " .")))
	return ext == ".bat" || ext == ".cmd"
}

var errBatchArgument = errors.New("an argument of a .cmd or .bat file cannot hold a line break")

// batchLine returns the command line with which cmd.exe runs a batch file, so that the batch file
// gets each argument as one word. Text that cmd.exe would interpret as a command, a redirection or
// a variable is quoted or escaped, as in Rust's standard library (CVE-2024-24576, "BatBadBut"). The
// quoting of os/exec is meant for other programs and would let an argument run commands. batchLine
// returns an error for a path or an argument that cannot be quoted.
func batchLine(shell, script string, args []string) (string, error) {
	if strings.ContainsAny(script, "\"%\r\n\x00") {
		return "", errors.New(`the path of a .cmd or .bat file cannot hold " or %`)
	}
	var line strings.Builder
	// /d: no AutoRun. /v:off: no expansion of !. /c removes the outer quotes.
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
				// Backslashes before a quote, and the quote itself, are doubled: then they are
				// literal.
				line.WriteString(strings.Repeat(`\`, slashes) + `"`)
				slashes = 0
			case '%':
				// Together with the following %, cmd.exe reads this as a literal % and an empty
				// variable.
				line.WriteString(`%%cd:~,`)
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
