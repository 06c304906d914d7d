package mcptest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// JournalDelay exceeds the time for which a journal collects records before it writes them.
const JournalDelay = 50 * time.Millisecond

// A Log records log lines as key=value, without the time.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// NewLog returns a Log, and a logger for all levels that writes to the Log. Session ids are
// replaced by "S", and call ids, times and durations are omitted, because they vary between runs.
func NewLog() (*Log, *slog.Logger) {
	l := &Log{}
	o := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: normalizeAttr}
	return l, slog.New(slog.NewTextHandler(l, o))
}

func normalizeAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "call", "started", "queued_ms", "dur_ms", "dur", "next", "in":
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

// Lines returns the lines that contain all texts.
func (l *Log) Lines(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.buf.String()) {
		lacks := func(text string) bool { return !strings.Contains(line, text) }
		if !slices.ContainsFunc(texts, lacks) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// Warnings returns the lines of warnings and errors.
func (l *Log) Warnings() []string {
	return slices.Concat(l.Lines("level=WARN"), l.Lines("level=ERROR"))
}
