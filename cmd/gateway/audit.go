package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/auditfile"
	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/text"
)

// auditRecords are the audit records of an app.
type auditRecords struct {
	*audit.Journal
	file   *auditfile.File  // nil = the records are part of the log, or there are none
	reopen <-chan os.Signal // each signal makes file open its path again; nil = none
	log    *slog.Logger
}

// openAudit opens the audit journal, which writes to audit.file or to log. If audit.file is none,
// the journal gets no records. openAudit returns an error if audit.file is a pipe or cannot be
// opened. The caller calls close.
func openAudit(
	l *config.Loaded, log *slog.Logger, mask *logging.Mask, reopen <-chan os.Signal,
) (*auditRecords, error) {
	c := l.Config.Audit
	o := audit.Options{Payloads: audit.Payloads(c.Payloads), Mask: mask.String}
	if c.File == "" || c.File == config.PathNone {
		return &auditRecords{Journal: audit.New(log, o), log: log}, nil
	}
	if info, err := os.Stat(c.File); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		err := errors.New("is a pipe: the gateway would wait until another process reads it")
		return nil, l.PathError("audit.file", c.File, err, "use a regular file")
	}
	warnAuditFileMode(log, c)
	file, err := auditfile.OpenFile(c.File, auditFileOptions(c), log)
	if err != nil {
		return nil, l.PathError("audit.file", c.File, err,
			"make the directory writable, or set audit.file to another path")
	}
	return &auditRecords{audit.NewLines(file, o), file, reopen, log}, nil
}

func auditFileOptions(c config.Audit) auditfile.Options {
	return auditfile.Options{
		MaxSize: c.MaxSize, MaxAge: c.MaxAge,
		Keep:     auditfile.Keep{Files: c.Keep.Files, Age: c.Keep.Age, Size: c.Keep.Size},
		Compress: auditfile.Compression(c.Compress), Chain: c.Chain,
	}
}

// run writes the records, and rotates and compresses files, until ctx is done.
func (r *auditRecords) run(ctx context.Context) {
	var files sync.WaitGroup
	if r.file != nil {
		files.Go(func() { _ = r.file.Run(ctx) })
		files.Go(func() { r.reopenAtSignals(ctx) })
	}
	_ = r.Journal.Run(ctx)
	files.Wait()
}

func (r *auditRecords) reopenAtSignals(ctx context.Context) {
	for {
		select {
		case <-r.reopen:
			if r.file.Reopen() == nil { // File logs an error
				r.log.Info("audit file reopened", "file", r.file.Status().Path)
			}
		case <-ctx.Done():
			return
		}
	}
}

// configure applies the keys of audit that a reload can change.
func (r *auditRecords) configure(c config.Audit) {
	if r.file != nil {
		r.file.Configure(auditFileOptions(c))
	}
}

func (r *auditRecords) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
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
