package text

import "strings"

// ShellWord quotes s as one word of a POSIX shell, if necessary.
func ShellWord(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,="
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return QuotedWord(s)
}

// QuotedWord quotes s in single quotes as one word of a POSIX shell.
func QuotedWord(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
