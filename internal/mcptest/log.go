package mcptest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// JournalDelay is longer than a journal lets records come together before it writes
// them.
const JournalDelay = 50 * time.Millisecond

// A Log keeps what is logged, as lines of key=value without the time.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// NewLog returns a Log and the logger that writes to it, at every level. Of what
// differs from run to run a session's id is "S" and durations are left out.
func NewLog() (*Log, *slog.Logger) {
	l := &Log{}
	return l, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: normalizeAttr}))
}

func normalizeAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "started", "queued_ms", "dur_ms", "dur", "next", "in":
		return slog.Attr{}
	case "session":
		return slog.String(a.Key, "S")
	}
	return a
}

// Write implements io.Writer.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(line)
}

// Lines returns the lines that contain all of the texts.
func (l *Log) Lines(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.buf.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// Warnings returns the warnings and errors.
func (l *Log) Warnings() []string {
	return slices.Concat(l.Lines("level=WARN"), l.Lines("level=ERROR"))
}
