package logging

import "bytes"

// FormatLost returns a SinkOptions.Lost that speaks the format of New's loggers.
func FormatLost(format string) func(n int) []byte {
	return func(n int) []byte {
		var line bytes.Buffer
		New(&line, Options{Format: format}).Warn("log records lost: nobody read them in time", "lost", n)
		return line.Bytes()
	}
}

func appendLine(b, line []byte) []byte {
	b = append(b, line...)
	if len(line) > 0 && line[len(line)-1] != '\n' {
		b = append(b, '\n')
	}
	return b
}

// wholeLines returns the lines at the head of b that fit into 4 KiB, but at least one: up to there a write to a pipe is
// atomic (POSIX PIPE_BUF on Linux), so lines of two gateways on one stderr do not mix.
func wholeLines(b []byte) []byte {
	head := b[:min(len(b), 4096)]
	if i := bytes.LastIndexByte(head, '\n'); i >= 0 {
		return b[:i+1]
	}
	return b[:bytes.IndexByte(b, '\n')+1]
}
