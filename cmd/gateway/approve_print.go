package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/wire"
)

// Limits of the output of approve. What is beyond them is counted.
const (
	maxShownLines  = 200   // lines about one tool
	maxShownTotal  = 20000 // lines about all tools
	maxShownLine   = 4000  // characters of one line
	contextOfLines = 60    // characters before and after a difference within a line
)

// A changePrinter prints the changes of tools. Text of servers is printed without control
// characters and with secrets masked.
type changePrinter struct {
	out   io.Writer
	mask  *logging.Mask
	text  bytes.Buffer
	lines int // about all tools
	tool  []string
}

// print prints the changes of a backend.
func (p *changePrinter) print(c *toolChanges) {
	if c.gone {
		fmt.Fprintf(&p.text, "%s: removed from the configuration\n", printable(c.backend))
		return
	}
	names := slices.Collect(maps.Keys(c.is))
	for name := range c.was {
		if c.is[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var counts [3]int // of new, changed and removed tools
	for _, name := range names {
		switch was, is := c.was[name], c.is[name]; {
		case was == nil:
			counts[0]++
		case is == nil:
			counts[2]++
		case was.Digest() != is.Digest():
			counts[1]++
		}
	}
	first := ""
	if c.isNew {
		first = ", not approved before"
	}
	fmt.Fprintf(&p.text, "%s: %d new, %d changed, %d removed%s\n", c.backend, counts[0],
		counts[1], counts[2], first)
	for _, name := range names {
		p.printTool(maskedName(p.mask, name), c.was[name], c.is[name])
	}
	for _, m := range c.moved {
		fmt.Fprintf(&p.text, "  the name %s belonged to %s\n", maskedName(p.mask, m.Name),
			printable(m.From))
	}
}

// flush writes what was printed.
func (p *changePrinter) flush() error {
	w := bufio.NewWriter(p.out)
	_, _ = w.WriteString(p.mask.String(p.text.String()))
	return w.Flush()
}

// printTool prints one tool, if it has changed.
func (p *changePrinter) printTool(name string, was, is *pins.Definition) {
	sign := "~"
	switch {
	case was == nil:
		sign = "+"
	case is == nil:
		fmt.Fprintf(&p.text, "  - %s\n", name)
		return
	case was.Digest() == is.Digest():
		return
	}
	fmt.Fprintf(&p.text, "  %s %s\n", sign, name)
	p.tool = nil
	for _, d := range was.Diff(is) {
		p.addDifference(d)
	}
	shown := min(len(p.tool), maxShownLines, maxShownTotal-p.lines)
	for _, line := range p.tool[:shown] {
		p.text.WriteString("      " + line + "\n")
	}
	p.lines += shown
	if more := len(p.tool) - shown; more > 0 {
		fmt.Fprintf(&p.text, "      and %d more lines: gateway tools --json shows all\n", more)
	}
}

// addDifference adds the lines about one value: - before lines of the old value, + before lines of
// the new one.
func (p *changePrinter) addDifference(d pins.Difference) {
	// masked before lines are cut, because a part of a secret is not recognized
	old, now := valueLines(p.mask.String(d.Old)), valueLines(p.mask.String(d.New))
	if d.Old != "" && d.New != "" {
		old, now = withoutCommon(old, now)
	}
	p.tool = append(p.tool, shortLine(escapeControls(d.Path))+":")
	for _, part := range []struct {
		sign  string
		lines []string
	}{{"  - ", old}, {"  + ", now}} {
		for _, line := range part.lines {
			p.tool = append(p.tool, part.sign+shortLine(escapeControls(line)))
		}
	}
}

// valueLines returns the lines of a value: those of a string, or of an object or a list with
// indentation.
func valueLines(value string) []string {
	switch {
	case value == "":
		return nil
	case value[0] == '"':
		return strings.Split(wire.Unquote([]byte(value)), "\n")
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(value), "", "  ") != nil {
		return []string{value} // a hash
	}
	return strings.Split(b.String(), "\n")
}

// withoutCommon removes the lines that both values have at the beginning and at the end. If one
// line of each is left, it also shortens what both lines have in common.
func withoutCommon(a, b []string) ([]string, []string) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) != 1 || len(b) != 1 {
		return a, b
	}
	x, y := []rune(a[0]), []rune(b[0])
	before, after := 0, 0
	for before < min(len(x), len(y)) && x[before] == y[before] {
		before++
	}
	for after < min(len(x), len(y))-before && x[len(x)-1-after] == y[len(y)-1-after] {
		after++
	}
	from, rest := max(before-contextOfLines, 0), max(after-contextOfLines, 0)
	cut := func(r []rune) []string {
		text := string(r[from : len(r)-rest])
		if from > 0 {
			text = "…" + text
		}
		if rest > 0 {
			text += "…"
		}
		return []string{text}
	}
	return cut(x), cut(y)
}

// shortLine cuts a line, and counts what is cut.
func shortLine(line string) string {
	r := []rune(line)
	if more := len(r) - maxShownLine; more > 0 {
		return fmt.Sprintf("%s… and %d more characters", string(r[:maxShownLine]), more)
	}
	return line
}
