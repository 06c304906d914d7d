package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"mcpgateway/internal/logging"
)

// oneLine returns a text on one line, without control characters.
func oneLine(s string) string { return printable(strings.Join(strings.Fields(s), " ")) }

// printable replaces characters that are not printable by U+FFFD, because they could move the
// cursor of a terminal or shift a column.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// maskedLine returns a text, possibly from a backend, on one line and with secrets masked. It masks
// before and after it changes spaces, because a secret may contain spaces.
func maskedLine(m *logging.Mask, text string) string { return m.String(oneLine(m.String(text))) }

// maskedName returns a name from a backend with secrets masked and control characters replaced.
func maskedName(m *logging.Mask, name string) string { return printable(m.String(name)) }

// forWriter escapes a text for w. If w is a terminal, characters that control it or change the
// direction of the text become escapes such as \u001b; otherwise the text is unchanged.
func forWriter(w io.Writer, text string) string {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return escapeControls(text)
	}
	return text
}

// escapeControls replaces characters that are not printable by escapes. Line feeds, tabs and spaces
// stay, and a carriage return before a line feed is dropped.
func escapeControls(text string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// truncate shortens a text to at most n characters, including an ellipsis at the end.
func truncate(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
