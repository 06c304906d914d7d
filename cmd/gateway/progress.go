package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"mcpgateway/backends"
)

// progress shows on stderr the backends that a command waits for. On a terminal it overwrites one
// line. Otherwise it prints a line after 2 s, and a further line every 5 s.
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
	names := unsettled(all)
	p.print(fmt.Sprintf("waiting for %s (%d of %d have answered, %.0f s)",
		truncate(strings.Join(names, ", "), 60), len(all)-len(names), len(all),
		time.Since(p.began).Seconds()))
}

func (p *progress) due() bool {
	return p.terminal ||
		time.Since(p.began) >= 2*time.Second && time.Since(p.last) >= 5*time.Second
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
