package main

import (
	"context"
	"errors"
	"time"

	"mcpgateway/internal/auditlog"
)

// A backendLog is a log with lines about backends.
type backendLog interface {
	// lines returns the first lines about a backend, at most limit, from since until before until.
	// It reports whether there are more.
	lines(ctx context.Context, backend string, since, until time.Time, limit int) (
		lines []string, more bool, err error)
}

// backendLogOf returns the source for the flag --log; nil = there is none.
func backendLogOf(path string) backendLog {
	if path == "" {
		return nil
	}
	return logFilePath(path)
}

// A logFilePath is the path of a log in the format text or json.
type logFilePath string

var errEnough = errors.New("enough lines")

func (path logFilePath) lines(
	ctx context.Context, backend string, since, until time.Time, limit int,
) (lines []string, more bool, err error) {
	log, err := auditlog.OpenFiles([]string{string(path)})
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	err = log.EachLogLine(ctx, backend, since, until, func(r *auditlog.RecordLine) error {
		if len(lines) == limit {
			return errEnough
		}
		lines = append(lines, safeText(string(r.Line), logLineWidth))
		return nil
	})
	if err == errEnough {
		return lines, true, nil
	}
	return lines, false, err
}

// logLineWidth bounds the characters of a line of the log that are printed.
const logLineWidth = 1000
