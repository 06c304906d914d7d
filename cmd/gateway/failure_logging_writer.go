package main

import (
	"io"
	"log/slog"
)

// A failureLoggingWriter says in the log when its file cannot be written to any more, and when it can
// again: once each, whatever is lost meanwhile.
type failureLoggingWriter struct {
	io.Writer
	log    *slog.Logger
	failed bool
}

func (t *failureLoggingWriter) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	switch {
	case err != nil && !t.failed:
		t.log.Error("the audit file cannot be written; records are lost until it can", "err", err)
	case err == nil && t.failed:
		t.log.Info("the audit file is written again")
	}
	t.failed = err != nil
	return n, err
}
