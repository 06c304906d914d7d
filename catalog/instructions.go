package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxInstructions bounds the merged instructions, in characters, because some clients truncate
// longer ones. It does not bound Options.Instructions.
const maxInstructions = 2048

// minInstructions is the smallest share of maxInstructions that a backend's text gets, in
// characters, unless the text is shorter. If the shares would be smaller, the instructions contain
// only the names of the backends.
const minInstructions = 16

// A section is one backend's part of the merged instructions.
type section struct {
	backend, text string
	size          int // length of text in characters
}

func (s section) heading() string { return "## " + s.backend + "\n\n" }

// instructions joins the instructions of the backends, each below a heading with the backend's
// name, unless the options replace them all. A backend without instructions has no heading. If the
// result would exceed maxInstructions, headings included, short texts stay whole, and the others
// share the remaining characters equally. cut is the number of characters that were cut from the
// texts.
func instructions(o Options, listings []Listing) (text string, cut int) {
	if o.Instructions != nil {
		return *o.Instructions, 0
	}
	var sections []section
	fixed, least, whole := 0, 0, 0
	for _, l := range listings {
		text := l.Instructions
		if replacement, ok := o.BackendInstructions[l.Backend]; ok {
			text = replacement
		}
		if text = plainText(text); text == "" {
			continue
		}
		s := section{l.Backend, text, utf8.RuneCountInString(text)}
		if len(sections) > 0 {
			fixed += len("\n\n")
		}
		fixed += utf8.RuneCountInString(s.heading())
		least += min(s.size, minInstructions)
		whole += s.size
		sections = append(sections, s)
	}
	if fixed+least > maxInstructions {
		return namesOnly(sections), whole
	}
	share := fairShare(sections, maxInstructions-fixed)
	var b strings.Builder
	for i, s := range sections {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(s.heading())
		if s.size <= share {
			b.WriteString(s.text)
			continue
		}
		kept := strings.TrimRightFunc(firstRunes(s.text, share-1), unicode.IsSpace)
		b.WriteString(kept + "…")
		cut += s.size - utf8.RuneCountInString(kept)
	}
	return b.String(), cut
}

// fairShare returns the largest limit for the text of one section: if each longer text is cut to
// the limit, the texts of all sections fit into room (max-min fairness). If all texts fit uncut, it
// returns maxInstructions.
func fairShare(sections []section, room int) int {
	sizes := make([]int, 0, len(sections))
	for _, s := range sections {
		sizes = append(sizes, s.size)
	}
	slices.Sort(sizes)
	for i, size := range sizes {
		if rest := len(sizes) - i; size*rest > room {
			return room / rest
		}
		room -= size
	}
	return maxInstructions
}

// namesOnly returns a list of the names of the backends. Names that do not fit are only counted.
func namesOnly(sections []section) string {
	const first = "There is no room for the instructions of these servers: "
	more := func(n int) string { return fmt.Sprintf(" and %d more", n) }
	room := maxInstructions - len(first) - len(more(len(sections)))
	var names []string
	for i, s := range sections {
		if room -= utf8.RuneCountInString(s.backend) + len(", "); room < 0 {
			return first + strings.Join(names, ", ") + more(len(sections)-i)
		}
		names = append(names, s.backend)
	}
	return first + strings.Join(names, ", ")
}

// firstRunes returns the first n characters of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// lineEnds replaces every kind of line end by a line feed.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n",
	"\u2028", "\n", "\u2029", "\n")

// plainText removes control and format characters and surrounding white space from a backend's
// text, and escapes lines that would be headings, so that the text cannot imitate the section of
// another backend.
func plainText(text string) string {
	if text == "" {
		return ""
	}
	text = lineEnds.Replace(text)
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u200c', r == '\u200d': // the last two are joiners
			return r
		case unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		bare := strings.TrimLeftFunc(line, func(r rune) bool {
			return unicode.IsSpace(r) || r == '\u200c' || r == '\u200d'
		})
		if isHeading(bare) {
			lines[i] = `\` + bare
		}
	}
	return strings.Join(lines, "\n")
}

// isHeading reports whether a line is a Markdown heading, or the underline of one.
func isHeading(line string) bool {
	if strings.HasPrefix(line, "#") {
		return true
	}
	line = strings.TrimRightFunc(line, unicode.IsSpace)
	return line != "" && (strings.Trim(line, "=") == "" || strings.Trim(line, "-") == "")
}
