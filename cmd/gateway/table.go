package main

import (
	"strings"
	"unicode/utf8"
)

// A textTable is text in columns. A column whose head begins with > is aligned to the right. If the
// table is wider than the screen, the column shrink is shortened.
type textTable struct {
	screen
	shrink int
	heads  []string
	rows   []tableRow
}

// A tableRow has a color for its second cell, and a note that is printed below it.
type tableRow struct {
	cells       []string
	color, note string
}

// Widths of a column that is shortened, and of a last column with text, and the space between
// columns; lines of a note.
const (
	minColumn     = 8
	minLastColumn = 40
	columnGap     = 2
	noteLines     = 3
)

func (t *textTable) head(heads ...string) { t.heads = heads }

func (t *textTable) row(color, note string, cells ...string) {
	t.rows = append(t.rows, tableRow{cells, color, note})
}

// print writes the table.
func (t *textTable) print(b *strings.Builder) {
	widths := t.widths()
	names := make([]string, len(t.heads))
	for i, head := range t.heads {
		names[i] = strings.TrimPrefix(head, ">")
	}
	t.printRow(b, widths, tableRow{cells: names})
	for _, r := range t.rows {
		t.printRow(b, widths, r)
		if r.note != "" {
			t.printNote(b, r.note)
		}
	}
}

// widths returns the widths of the columns.
func (t *textTable) widths() []int {
	widths := make([]int, len(t.heads))
	total := -columnGap
	for i, head := range t.heads {
		widths[i] = len(strings.TrimPrefix(head, ">"))
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
		if i < len(t.heads)-1 || t.isRight(i) {
			total += widths[i]
		} else {
			total += min(widths[i], minLastColumn)
		}
		total += columnGap
	}
	if excess := total - t.columns; t.columns > 0 && excess > 0 {
		widths[t.shrink] = max(widths[t.shrink]-excess, minColumn)
	}
	return widths
}

func (t *textTable) isRight(column int) bool { return strings.HasPrefix(t.heads[column], ">") }

func (t *textTable) printRow(b *strings.Builder, widths []int, r tableRow) {
	var line strings.Builder
	used := 0
	for i, cell := range r.cells {
		width := widths[i]
		if i == len(r.cells)-1 && !t.isRight(i) {
			width = t.columns - used
		}
		cell = t.fit(cell, width)
		space := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0))
		if t.color && r.color != "" && i == 1 {
			cell = r.color + cell + "\033[0m"
		}
		if t.isRight(i) {
			cell = space + cell
		} else {
			cell += space
		}
		line.WriteString(cell + strings.Repeat(" ", columnGap))
		used += widths[i] + columnGap
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// printNote prints a note on a few indented lines.
func (t *textTable) printNote(b *strings.Builder, note string) {
	const indent = "    "
	width := max(t.columns-len(indent), 2*minColumn)
	rest := []rune(note)
	for n := 1; t.columns > 0 && n < noteLines && len(rest) > width; n++ {
		end := width
		for end > width/2 && rest[end] != ' ' {
			end--
		}
		if rest[end] != ' ' {
			end = width
		}
		b.WriteString(indent + strings.TrimRight(string(rest[:end]), " ") + "\n")
		rest = []rune(strings.TrimLeft(string(rest[end:]), " "))
	}
	b.WriteString(indent + t.fit(string(rest), width) + "\n")
}

// fit shortens a text to a width, unless the screen has no limit.
func (t *textTable) fit(text string, width int) string {
	if t.columns == 0 {
		return text
	}
	return truncate(text, max(width, 1))
}
