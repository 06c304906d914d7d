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
	// maxStderrLine bounds a line of a child's stderr, in bytes; longer lines are cut.
	maxStderrLine = 8 << 10
	// maxSecret is the number of further bytes of a line that are masked before the line is cut, so
	// that a secret at the cut is recognised.
	maxSecret = 4 << 10
)

// copyLines reads r to its end and calls the given functions with each line that is not empty,
// after masking the line. It never stops early, because a child whose stderr is not read would
// block.
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

// stderrTail keeps the last lines of the stderr of a child, and the first earlier line that
// mentions an error, because a long stack trace often follows the cause. Lines before a silence of
// staleStderr are forgotten.
type stderrTail struct {
	mu     sync.Mutex
	cause  string // earlier line that mentions an error; "" = none
	lines  []string
	lastAt time.Time // time of the last line
}

const (
	tailLines     = 5
	tailLineBytes = 300 // bytes kept of each line
)

func (l *stderrTail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(line) > tailLineBytes {
		line = strings.ToValidUTF8(line[:tailLineBytes], "") + "…"
	}
	before := l.lastAt
	if l.lastAt = time.Now(); l.lastAt.Sub(before) >= staleStderr {
		l.lines, l.cause = nil, "" // earlier lines are unrelated
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

// mentionsError reports whether a line contains a word that is usual in error messages of programs
// in Go, Rust, Node, Python or Java.
func mentionsError(line string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc([]string{"error", "panic", "fatal", "exception"},
		func(word string) bool { return strings.Contains(line, word) })
}

// exitError returns the ExitError of a child that has just ended.
func (l *stderrTail) exitError(status string) *ExitError {
	e := &ExitError{Status: status, Stderr: l.String()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Stderr != "" {
		e.SilentFor = time.Since(l.lastAt)
	}
	return e
}

// String returns the cause and the last lines on one line.
func (l *stderrTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != "" {
		return l.cause + " … " + strings.Join(l.lines, " | ")
	}
	return strings.Join(l.lines, " | ")
}

// An ExitError describes the end of a child process or of its stdout.
type ExitError struct {
	Status    string        // such as "exit 127" or "signal: killed"
	Stderr    string        // last lines of stderr
	SilentFor time.Duration // time from the last line of stderr to the end
}

// staleStderr is the minimum age at which an ExitError shows the age of the last lines of stderr,
// because they may be unrelated to the end of the process.
const staleStderr = 10 * time.Second

func (e *ExitError) Error() string {
	switch {
	case e.Stderr == "":
		return e.Status
	case e.SilentFor >= staleStderr:
		return fmt.Sprintf("%s; its last words, %v before: %s",
			e.Status, e.SilentFor.Truncate(time.Second), e.Stderr)
	}
	return fmt.Sprintf("%s; its last words: %s", e.Status, e.Stderr)
}
