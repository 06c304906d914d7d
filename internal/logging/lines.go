package logging

import "bytes"

// FormatLost returns a SinkOptions.Lost for the log format of New.
func FormatLost(format string) func(n int) []byte {
	return func(n int) []byte {
		var line bytes.Buffer
		log := New(&line, Options{Format: format})
		log.Warn("log records lost: stderr was not read in time", "lost", n)
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

// wholeLines returns the lines at the beginning of b that fit into 4 KiB, and at least one line. A
// write of up to 4 KiB to a pipe is atomic (PIPE_BUF on Linux), so that lines of two gateways on
// one stderr do not mix.
func wholeLines(b []byte) []byte {
	head := b[:min(len(b), 4096)]
	if i := bytes.LastIndexByte(head, '\n'); i >= 0 {
		return b[:i+1]
	}
	return b[:bytes.IndexByte(b, '\n')+1]
}
