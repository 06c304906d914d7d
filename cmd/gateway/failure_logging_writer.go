package main

import (
	"io"
	"log/slog"
)

// A failureLoggingWriter writes to the audit file. Of several failed writes in a row it logs the
// first, and it logs the first successful write after a failure.
type failureLoggingWriter struct {
	io.Writer
	log    *slog.Logger
	failed bool
}

func (t *failureLoggingWriter) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	switch {
	case err != nil && !t.failed:
		t.log.Error("audit file not writable: records lost", "err", err)
	case err == nil && t.failed:
		t.log.Info("audit file writable again")
	}
	t.failed = err != nil
	return n, err
}
