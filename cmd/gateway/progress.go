package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"

	"mcpgateway/backends"
)

// progress says on stderr for which backends a verb is waiting: on a terminal
// in one line that is written over, elsewhere in a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	began    time.Time
	last     time.Time
	shown    bool
}

func (p *progress) show(all []backends.Status) {
	if !p.due() {
		return
	}
	var names []string
	for _, s := range all {
		if !s.Settled {
			names = append(names, s.Name)
		}
	}
	p.print(fmt.Sprintf("waiting for %s (%d of %d have answered, %.0f s)",
		clip(strings.Join(names, ", "), 60), len(all)-len(names), len(all), time.Since(p.began).Seconds()))
}

func (p *progress) due() bool {
	return p.terminal || time.Since(p.began) >= 2*time.Second && time.Since(p.last) >= 5*time.Second
}

func (p *progress) print(text string) {
	p.last = time.Now()
	if p.terminal {
		fmt.Fprintf(p.w, "\r\033[K%s", text)
		p.shown = true
	} else {
		fmt.Fprintln(p.w, text)
	}
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\033[K")
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// oneLine returns a text on one line.
func oneLine(s string) string { return plain(strings.Join(strings.Fields(s), " ")) }

// plain returns a text without what would move a terminal's cursor, or a column.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// visible returns a text as it may be written to w. A terminal gets each character that would control
// it, or turn the direction of the text, as an escape such as \u001b; anything else gets the text.
func visible(w io.Writer, text string) string {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return escaped(text)
	}
	return text
}

// escaped returns a text with escapes in the place of the characters that are not printed. Line ends,
// tabs and spaces stay.
func escaped(text string) string {
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

// clip shortens a text to n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// nameList joins the first 20 names and counts the others.
func nameList(names []string) string {
	const shown = 20
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "none")
}
