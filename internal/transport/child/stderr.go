package child

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxStderrLine is where a line on a child's stderr is cut, in bytes.
	maxStderrLine = 8 << 10
	// maxSecret is how much more of it is looked at, so that a secret that stands
	// where it is cut is still known for one.
	maxSecret = 4 << 10
)

// copyLines reads r to its end and hands each line, masked, to all of to. It never
// stops before the end, whatever stands there: a child whose stderr is not
// read blocks.
func copyLines(r io.Reader, mask func(string) string, to ...func(string)) {
	br := bufio.NewReaderSize(r, maxStderrLine+maxSecret)
	for {
		line, err := br.ReadSlice('\n')
		text := strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r\n")
		if mask != nil {
			text = mask(text)
		}
		if len(text) > maxStderrLine {
			text = strings.ToValidUTF8(text[:maxStderrLine], "")
		}
		if text != "" {
			for _, f := range to {
				if f != nil {
					f(text)
				}
			}
		}
		for err == bufio.ErrBufferFull {
			_, err = br.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// stderrTail keeps what a child wrote on its stderr last, and of what went before
// the first line that speaks of an error: the cause often stands above a long
// trace.
type stderrTail struct {
	mu     sync.Mutex
	cause  string
	lines  []string
	lastAt time.Time // of the last line
}

const (
	tailLines     = 5
	tailLineBytes = 300 // bytes of each line
)

func (l *stderrTail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(line) > tailLineBytes {
		line = strings.ToValidUTF8(line[:tailLineBytes], "") + "…"
	}
	before := l.lastAt
	if l.lastAt = time.Now(); l.lastAt.Sub(before) >= staleStderr {
		l.lines, l.cause = nil, "" // it was about something else
	}
	l.lines = append(l.lines, line)
	if len(l.lines) <= tailLines {
		return
	}
	if first := l.lines[0]; l.cause == "" && mentionsError(first) {
		l.cause = first
	}
	l.lines = append(l.lines[:0], l.lines[1:]...)
}

// mentionsError reports whether a line has a word with which programs in Go, Rust, Node, Python or Java
// begin to say why they end.
func mentionsError(line string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc([]string{"error", "panic", "fatal", "exception"}, func(word string) bool { return strings.Contains(line, word) })
}

// exitError returns the ExitError of a child that ends now.
func (l *stderrTail) exitError(status string) *ExitError {
	e := &ExitError{Status: status, Stderr: l.String()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Stderr != "" {
		e.SilentFor = time.Since(l.lastAt)
	}
	return e
}

func (l *stderrTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != "" {
		return l.cause + " … " + strings.Join(l.lines, " | ")
	}
	return strings.Join(l.lines, " | ")
}

// An ExitError tells how a child process ended.
type ExitError struct {
	Status    string        // "exit 127", "signal: killed"
	Stderr    string        // the last lines it wrote there
	SilentFor time.Duration // how long it had written nothing there when it ended
}

// staleStderr is how old what a child wrote last may be, for it to be taken for the cause of its end.
const staleStderr = 10 * time.Second

func (e *ExitError) Error() string {
	switch {
	case e.Stderr == "":
		return e.Status
	case e.SilentFor >= staleStderr:
		return fmt.Sprintf("%s; its last words, %v before: %s", e.Status, e.SilentFor.Truncate(time.Second), e.Stderr)
	}
	return fmt.Sprintf("%s; its last words: %s", e.Status, e.Stderr)
}
