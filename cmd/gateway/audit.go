package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/text"
)

// openJournal opens the audit journal, which writes to audit.file or to log. If audit.file is none,
// the journal gets no records. The caller calls end when the journal has ended. openJournal returns
// an error if audit.file is a pipe or cannot be opened.
func openJournal(l *config.Loaded, log *slog.Logger, mask *logging.Mask) (
	j *audit.Journal, end func(), err error,
) {
	c := l.Config.Audit
	o := audit.Options{Payloads: audit.Payloads(c.Payloads), Mask: mask.String}
	if c.File == "" || c.File == config.PathNone {
		return audit.New(log, o), func() {}, nil
	}
	if info, err := os.Stat(c.File); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		err := errors.New("is a pipe: the gateway would wait until another process reads it")
		return nil, nil, l.PathError("audit.file", c.File, err, "use a regular file")
	}
	warnAuditFileMode(log, c)
	file, err := logging.OpenFile(c.File, logging.FileOptions{})
	if err != nil {
		return nil, nil, l.PathError("audit.file", c.File, err,
			"make the directory writable, or set audit.file to another path")
	}
	return audit.NewLines(&failureLoggingWriter{Writer: file, log: log}, o),
		func() { file.Close() }, nil
}

// warnAuditFileMode warns if other users can read or change an existing audit file, except on
// Windows. A new audit file has mode 0600.
func warnAuditFileMode(log *slog.Logger, c config.Audit) {
	path := absolutePath(c.File)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || runtime.GOOS == "windows" {
		return
	}
	message := ""
	switch mode := info.Mode().Perm(); {
	case mode&0o044 != 0 && mode&0o022 != 0:
		message = "audit file readable and writable by other users"
	case mode&0o044 != 0:
		message = "audit file readable by other users"
	case mode&0o022 != 0:
		message = "audit file writable by other users"
	default:
		return
	}
	hint := "run chmod 600 " + text.ShellWord(path)
	if c.Payloads != "none" {
		hint += "; payloads in the file may contain secrets"
	}
	log.Warn(message, "file", path, "text", hint)
}

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
